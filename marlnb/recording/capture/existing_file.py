"""What to do where a recording of the requested name exists: reuse it, refuse, or set aside one that was interrupted.

A writer may be killed at any moment: before its file can be read, between two flushes, or within one. Such a recording
never counts as complete. It is renamed; in a batch job, where being killed and run again is normal, it is deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marlnb.disk import writing
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.recording.file.checksums import has_checksums
from marlnb.recording.file.journal import complete_commit, is_being_written, journal_of
from marlnb.recording.file.layout import count_rows
from marlnb.recording.file.opening import Locking, open_file
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import move_recording, segments_folder
from marlnb.training.runs.files import JOB_VARIABLE


def reuse_or_set_aside(path: Path, settings: Mapping[str, Any], locking: Locking) -> bool:
    """Whether a complete recording with these settings is at `path`. An incomplete one is renamed or deleted.

    Raises:
        RecordingError: the recording has another checkpoint or other settings, or is being written.
    """
    segments = segments_folder(path)
    if any(map(is_being_written, segments.glob("*.h5"))):
        raise RecordingError(f"{segments} is being written by another process; wait for it, or give another name")
    if not path.exists():
        if segments.is_dir():  # the writer was killed before it joined the first segment
            _set_aside(path)
        return False
    complete_commit(path, locking=locking)
    if _is_unreadable(path):
        _set_aside(path)
        return False
    with Recording.open(path, locking=locking) as existing:
        differences = {
            key: (existing.settings.get(key), settings.get(key))
            for key in (*settings, *existing.settings)  # options at their defaults may be missing in either
            if existing.settings.get(key) != settings.get(key)
        }
        complete = existing.complete
    if differences:
        listing = "; ".join(f"{key} was {old!r}, requested {new!r}" for key, (old, new) in differences.items())
        raise RecordingError(f"{path} was recorded with other settings: {listing}. Give another name")
    if not complete:
        _set_aside(path)
    return complete


def _is_unreadable(path: Path) -> bool:
    """Whether a writer was killed before its first flush, so that HDF5 cannot open the file."""
    if is_being_written(path):
        return False
    try:
        with open_file(path, False) as file:
            return "format" not in file.attrs
    except RecordingError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno is not None:
            return False  # the file system refused to read, which may pass
        return not has_checksums(path)  # with them it was closed, so no kill explains it: it is damaged


def _set_aside(path: Path) -> None:
    """Renames an incomplete recording; deletes one without rows, and any in a batch job."""
    with writing(path, kind=RecordingWriteError):
        if os.environ.get(JOB_VARIABLE) or not _may_have_rows(path):
            path.unlink(missing_ok=True)
            shutil.rmtree(segments_folder(path), ignore_errors=True)
        elif not path.exists() or not _is_unreadable(path):
            move_recording(path, _free_path(path))
        else:
            target = _free_path(path)
            for old, new in ((path, target), (segments_folder(path), segments_folder(target))):
                if old.exists():
                    old.rename(new)
        journal_of(path).unlink(missing_ok=True)


def _may_have_rows(path: Path) -> bool:
    """False if the files of a recording can be read and hold no row, or there is none."""
    for file in sorted(segments_folder(path).glob("*.h5")) or [path]:
        try:
            with open_file(file, False) as opened:
                if count_rows(opened):
                    return True
        except (RecordingError, KeyError):
            if file.exists():
                return True
    return False


def _free_path(path: Path) -> Path:
    candidates = (path.with_name(f"{path.stem}.incomplete-{number}.h5") for number in range(1, 10**6))
    return next(name for name in candidates if not name.exists() and not segments_folder(name).exists())
