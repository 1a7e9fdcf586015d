"""Opening a recording's file, with errors that say why it cannot be opened and what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import h5py

from marlnb.errors import RecordingError
from marlnb.recording.file.journal import complete_commit
from marlnb.recording.file.layout import FORMAT, VERSION

Locking = bool | Literal["best-effort"] | None
NO_LOCKS = (37, 524)  # what NFS and Lustre answer where locking is not on


def open_recording_file(path: Path, locking: Locking) -> h5py.File:
    """An existing recording, to be read.

    Raises:
        RecordingError: it is not there, is locked, or is no recording that this version reads.
    """
    complete_commit(path, locking=locking)
    file = open_file(path, locking)
    found, version = file.attrs.get("format"), file.attrs.get("version", 0)
    if found != FORMAT or version > VERSION:
        file.close()
        told = f"its format is {found!r}" if found != FORMAT else f"its version {version} is newer than {VERSION}"
        raise RecordingError(f"{path} cannot be read as a recording of marlnb: {told}")
    return file


def open_file(path: Path, locking: Locking) -> h5py.File:
    try:
        return h5py.File(path, "r", locking=locking)
    except FileNotFoundError as error:
        near = sorted(str(other) for other in path.parent.glob("*.h5")) if path.parent.is_dir() else []
        hint = f"; recordings beside it: {', '.join(near[:5])}" if near else ""
        raise RecordingError(f"there is no recording {path}{hint}") from error
    except OSError as error:
        raise RecordingError(opening_failed(path, error)) from error


def opening_failed(path: Path, error: OSError) -> str:
    text = str(error)
    if isinstance(error, BlockingIOError) or "already open" in text or error.errno == 11:
        return f"{path} is being written; open it when it is done, or with locking=False to see its last whole block"
    if error.errno in NO_LOCKS or any(f"errno = {number}" in text for number in NO_LOCKS):
        return f"{path} lies on a file system without locks; open it with locking=False ({text})"
    if path.is_dir():
        return f"{path} is a folder; a recording is a file, as those in a run's recordings/"
    return f"{path} cannot be opened as HDF5: {text}"
