"""Opens a recording's file, with errors that say why it cannot be opened and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import h5py

from marlnb.errors import RecordingError
from marlnb.recording.file.journal import complete_commit
from marlnb.recording.file.layout import FORMAT, VERSION

Locking = bool | Literal["best-effort"] | None
NO_LOCK_ERRORS = (37, 524)  # of NFS and Lustre with locking turned off


def open_recording_file(path: Path, locking: Locking) -> h5py.File:
    """Opens an existing recording for reading.

    Raises:
        RecordingError: it does not exist, is locked, or is no recording that this version reads.
    """
    complete_commit(path, locking=locking)
    file = open_file(path, locking)
    file_format, version = file.attrs.get("format"), file.attrs.get("version", 0)
    if file_format != FORMAT or version > VERSION:
        file.close()
        if file_format != FORMAT:
            raise RecordingError(f"{path} is no recording of marlnb: its format is {file_format!r}")
        raise RecordingError(f"{path} has version {version}, and this marlnb reads up to {VERSION}; update marlnb")
    return file


def open_file(path: Path, locking: Locking) -> h5py.File:
    try:
        return h5py.File(path, "r", locking=locking)
    except FileNotFoundError as error:
        others = sorted(str(other) for other in path.parent.glob("*.h5")) if path.parent.is_dir() else []
        hint = f"; recordings in its folder: {', '.join(others[:5])}" if others else ""
        raise RecordingError(f"there is no recording {path}{hint}") from error
    except OSError as error:
        raise RecordingError(opening_failed(path, error)) from error


def opening_failed(path: Path, error: OSError) -> str:
    text = str(error)
    if isinstance(error, BlockingIOError) or "already open" in text or error.errno == 11:
        return f"{path} is being written; wait for its end, or open it with locking=False to read up to its last block"
    if error.errno in NO_LOCK_ERRORS or any(f"errno = {number}" in text for number in NO_LOCK_ERRORS):
        return f"{path} is on a file system without locks; open it with locking=False ({text})"
    if path.is_dir():
        return f"{path} is a folder; a recording is a file, as in a run's recordings/"
    return f"{path} cannot be opened as HDF5: {text}"
