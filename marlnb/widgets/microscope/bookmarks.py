"""Bookmarks: moments worth coming back to, kept as JSON beside the recording."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.errors import RecordingError
from marlnb.training.files import write_atomically


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
        return sorted(
            Bookmark(int(one["episode"]), int(one["t"]), str(one["note"])) for one in json.loads(path.read_text())
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordingError(f"{path} holds no bookmarks ({error!r}): a list of {{episode, t, note}}") from error


def write_bookmarks(recording: Path, bookmarks: Iterable[Bookmark]) -> Path:
    """Raises OSError where the folder cannot be written to."""
    path = bookmarks_path(recording)
    write_atomically(path, json.dumps([asdict(one) for one in sorted(bookmarks)], indent=1) + "\n", sync=False)
    return path
