"""What is there already under a recording's name: the same one, whole; another one; or one that broke off.

A writer may be killed at any moment: before its file can be read, between two flushes, within one. Such a recording is
never taken for a whole one. It is kept under another name, or, in a batch job, which is killed and run again as a
matter of course, removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py

from marlnb.errors import RecordingError
from marlnb.recording.file.journal import complete_commit, journal_of
from marlnb.recording.file.opening import Locking
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import is_being_written, move_recording, segments_folder
from marlnb.training.runs.files import JOB_VARIABLE


def is_there(path: Path, settings: Mapping[str, Any], locking: Locking) -> bool:
    """Whether a complete recording of these settings is at `path`; one that broke off is moved out of the way.

    Raises:
        RecordingError: it was made from another checkpoint or with other settings, or is being written.
    """
    segments = segments_folder(path)
    if any(map(is_being_written, segments.glob("*.h5"))):
        raise RecordingError(f"{segments} is being written by another process; wait for it, or give another name")
    if not path.exists():
        if segments.is_dir():  # a writer was killed before it joined the first one
            _put_aside(path)
        return False
    complete_commit(path, locking=locking)
    if _was_hardly_begun(path):
        _put_aside(path)
        return False
    with Recording.open(path, locking=locking) as found:
        differing = {
            key: (found.settings.get(key), value) for key, value in settings.items() if found.settings.get(key) != value
        }
        complete = found.complete
    if differing:
        told = "; ".join(f"{key} {was!r}, now {now!r}" for key, (was, now) in differing.items())
        raise RecordingError(f"{path} is another recording: {told}. Give another name")
    if not complete:
        _put_aside(path)
    return complete


def _was_hardly_begun(path: Path) -> bool:
    """Whether a writer was killed before its first flush, so that HDF5 finds nothing that it could open."""
    if is_being_written(path):
        return False
    try:
        with h5py.File(path, "r", locking=False) as file:
            return "format" not in file.attrs
    except OSError as error:
        return error.errno is None  # else the file system would not let it be read: that may pass


def _put_aside(path: Path) -> None:
    if os.environ.get(JOB_VARIABLE):
        path.unlink(missing_ok=True)
        shutil.rmtree(segments_folder(path), ignore_errors=True)
    elif path.exists() and not _was_hardly_begun(path):
        move_recording(path, _free_name(path))
    else:
        target = _free_name(path)
        for part, kept in ((path, target), (segments_folder(path), segments_folder(target))):
            if part.exists():
                part.rename(kept)
    journal_of(path).unlink(missing_ok=True)


def _free_name(path: Path) -> Path:
    numbers = (path.with_name(f"{path.stem}.incomplete-{number}.h5") for number in range(1, 10**6))
    return next(name for name in numbers if not name.exists() and not segments_folder(name).exists())
