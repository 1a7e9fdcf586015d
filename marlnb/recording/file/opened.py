"""Accepts an open recording or its path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from marlnb.errors import RecordingError, shown
from marlnb.paths import expanded

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

T = TypeVar("T")
RecordingLike: TypeAlias = "Recording | str | os.PathLike[str]"


def opened_recording(recording: RecordingLike) -> Recording:
    """The recording itself, or the one at a path; that is closed when nothing refers to it any more.

    Raises:
        RecordingError: there is no recording at the path, or it is neither a recording nor a path.
    """
    from marlnb.recording.file.reader import Recording

    if isinstance(recording, Recording):
        return recording
    if not isinstance(recording, str | os.PathLike):
        raise RecordingError(
            f"expected a recording or its path, as marlnb.record(run) or 'runs/talk/recordings/recording.h5'; "
            f"got {type(recording).__name__} {shown(recording)}"
        )
    return Recording.open(recording)


def opened_if_file(source: T) -> T | Recording:
    """The recording at a path of a file; any other source of episodes, as a run's folder, as it is.

    Raises:
        RecordingError: there is no recording at the path.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    path = expanded(source)
    return opened_recording(path) if path.suffix == ".h5" or os.path.isfile(path) else source
