"""Opens a recording's file, with errors that say why it cannot be opened and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import h5py

from marlnb.display.formatting import marlnb_command
from marlnb.errors import MarlnbError, RecordingError
from marlnb.recording.file.inspection import inspect, sources_of
from marlnb.recording.file.journal import complete_commit, is_being_written
from marlnb.recording.file.layout import FORMAT, VERSION

Locking = bool | Literal["best-effort"] | None
NO_LOCK_ERRORS = (37, 524)  # of NFS and Lustre with locking turned off


def open_recording_file(path: Path, locking: Locking) -> h5py.File:
    """Opens an existing recording for reading.

    Raises:
        RecordingError: it does not exist, is locked, or is no recording that this version reads.
    """
    complete_commit(path, locking=locking)
    file, sources = _open(path, locking)
    try:
        with reading(path, "its format"):
            file_format, version = file.attrs.get("format"), int(file.attrs.get("version", 0))
        if file_format != FORMAT:
            raise RecordingError(f"{path} is not a recording of marlnb: its format is {file_format!r}")
        if version > VERSION:
            raise RecordingError(f"{path} has version {version}, and this marlnb reads up to {VERSION}; update marlnb")
        with reading(path, "its list of segments"):
            others = sources - {str(name) for name in file.attrs.get("segments", ())}
        if others:
            raise RecordingError(f"{path} is not opened, because it reads {min(others)}, which is none of its segments")
    except RecordingError:
        file.close()
        raise
    return file


def open_file(path: Path, locking: Locking) -> h5py.File:
    """Opens a file for reading after it was inspected."""
    return _open(path, locking)[0]


def _open(path: Path, locking: Locking) -> tuple[h5py.File, frozenset[str]]:
    """The file, and the files that its virtual datasets read."""
    if not path.exists():
        others = sorted(str(other) for other in path.parent.glob("*.h5")) if path.parent.is_dir() else []
        hint = f"; HDF5 files in its folder: {', '.join(others[:5])}" if others else ""
        raise RecordingError(f"there is no recording {path}{hint}")
    if locking is not False and path.is_file() and is_being_written(path):
        raise RecordingError(being_written(path))
    inspect(path)
    sources = sources_of(path)  # not after HDF5 has read the file's start, which a writer may change meanwhile
    try:
        return h5py.File(path, "r", locking=locking), sources
    except OSError as error:
        raise RecordingError(opening_failed(path, error)) from error


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Where a damaged file makes a block raise, whatever that is, raises RecordingError with the path and `what`."""
    try:
        yield
    except MarlnbError:
        raise
    except PermissionError as error:
        raise RecordingError(f"{path} may not be read by this user: {error}") from error
    except Exception as error:  # HDF5, h5py and the contents: OSError, RuntimeError, KeyError, TypeError, ...
        if is_being_written(path):
            raise RecordingError(changed_meanwhile(path)) from error
        raise RecordingError(
            f"{path} is damaged: {what} cannot be read ({type(error).__name__}: {error}); "
            f"`{marlnb_command('repair', path)}` keeps the intact episodes"
        ) from error


def opening_failed(path: Path, error: OSError) -> str:
    text = str(error)
    if isinstance(error, BlockingIOError) or "already open" in text or error.errno == 11:
        return being_written(path)
    if error.errno in NO_LOCK_ERRORS or any(f"errno = {number}" in text for number in NO_LOCK_ERRORS):
        return f"{path} is on a file system without locks; open it with locking=False ({text})"
    return f"{path} cannot be opened as HDF5: {text}"


def changed_meanwhile(path: Path) -> str:
    return f"{path} is being written, and it changed while it was read; open it again"


def being_written(path: Path) -> str:
    return f"{path} is being written; wait for its end, or open it with locking=False to read up to its last block"
