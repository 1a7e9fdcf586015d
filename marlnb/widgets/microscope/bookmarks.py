"""Bookmarks: steps of episodes with notes, stored as JSON next to the recording."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.errors import RecordingError
from marlnb.text_files import read_text
from marlnb.training.runs.files import write_atomically


@dataclass(frozen=True, order=True)
class Bookmark:
    """A step of an episode.

    Attributes:
        episode: its number.
        t: steps since the episode began.
        note: of the user.
    """

    episode: int
    t: int
    note: str = ""


def bookmarks_path(recording: Path) -> Path:
    return recording.with_name(f"{recording.name}.bookmarks.json")


def read_bookmarks(recording: Path) -> list[Bookmark]:
    """The bookmarks of a recording, sorted by episode and step; none if there is no file.

    Raises:
        RecordingError: the file does not hold bookmarks.
    """
    path = bookmarks_path(recording)
    if not path.exists():
        return []
    try:
        entries = json.loads(read_text(path, follow=False))
        if not isinstance(entries, list):
            raise TypeError(f"got a {type(entries).__name__}")
        return sorted(Bookmark(int(entry["episode"]), int(entry["t"]), str(entry["note"])) for entry in entries)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise RecordingError(
            f"{path} is not a file of bookmarks ({error!r}): expected a list of {{episode, t, note}}"
        ) from error


class Bookmarks:
    """A recording's bookmarks, in memory, and in the file if that can be read and written.

    Attributes:
        marks: sorted by episode and step.
        status: where they are stored; empty if they are not in the file.
        problem: why they are not stored in the file; empty if they are.
    """

    def __init__(self, recording: Path) -> None:
        self._recording = recording
        self.marks: list[Bookmark] = []
        self.status = self.problem = ""
        try:
            self.marks = read_bookmarks(recording)
            self._can_write = True
        except RecordingError as error:  # never overwrite a file that is not ours
            self.problem, self._can_write = f"{error}; new bookmarks exist in this notebook only", False

    def replace(self, marks: Iterable[Bookmark]) -> None:
        """Replaces all bookmarks."""
        self.marks = sorted(set(marks))
        if not self._can_write:
            return
        path = bookmarks_path(self._recording)
        try:
            write_atomically(path, json.dumps([asdict(mark) for mark in self.marks], indent=1) + "\n", sync=False)
            self.status, self.problem = f"stored in {path.name}, next to the recording", ""
        except OSError as error:
            self.status = ""
            self.problem = f"cannot write {path} ({error.strerror or error}): bookmarks exist in this notebook only"
