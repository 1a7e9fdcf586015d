"""Bookmarks: moments worth coming back to, kept as JSON beside the recording."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.errors import RecordingError
from marlnb.training.runs.files import write_atomically


@dataclass(frozen=True, order=True)
class Bookmark:
    """Attributes: t: steps since the episode began."""

    episode: int
    t: int
    note: str = ""


def bookmarks_path(recording: Path) -> Path:
    return recording.with_name(f"{recording.name}.bookmarks.json")


def read_bookmarks(recording: Path) -> list[Bookmark]:
    """Those beside a recording, by episode and step; none where there is no file.

    Raises:
        RecordingError: the file is something else.
    """
    path = bookmarks_path(recording)
    if not path.exists():
        return []
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(kept, list):
            raise TypeError(f"it is a {type(kept).__name__}")
        return sorted(Bookmark(int(one["episode"]), int(one["t"]), str(one["note"])) for one in kept)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordingError(f"{path} holds no bookmarks ({error!r}): a list of {{episode, t, note}}") from error


class Bookmarks:
    """A recording's bookmarks: in memory, and in the file beside it where that can be read and written.

    Attributes:
        marks: by episode and step. told: where they are kept, in words; problem: why they are not kept in the file.
    """

    def __init__(self, recording: Path) -> None:
        self._recording = recording
        self.marks: list[Bookmark] = []
        self.told = self.problem = ""
        try:
            self.marks = read_bookmarks(recording)
            self._whole = True
        except RecordingError as error:  # what somebody wrote there is not written over
            self.problem, self._whole = f"{error}; new ones are kept in this notebook only", False

    def keep(self, marks: Iterable[Bookmark]) -> None:
        """Replaces them."""
        self.marks = sorted(set(marks))
        if not self._whole:
            return
        path = bookmarks_path(self._recording)
        try:
            write_atomically(path, json.dumps([asdict(one) for one in self.marks], indent=1) + "\n", sync=False)
            self.told, self.problem = f"kept in {path.name}, beside the recording", ""
        except OSError as error:
            self.told = ""
            self.problem = f"{path} cannot be written ({error.strerror or error}): kept in this notebook only"
