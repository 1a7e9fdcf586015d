"""gallery: the trained agents and recordings that are available, as a table or one of them by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import overload

from markupsafe import Markup

from marlnb.display.formatting import format_bytes
from marlnb.display.notebook_html import note_html, table_html
from marlnb.errors import MarlnbError, UnknownNameError, unknown
from marlnb.galleries.entry import SEPARATOR, Entry
from marlnb.galleries.folders import entry_folders

HEADER = ("name", "what", "kind", "environment", "algorithm", "return [95% interval]", "random actions", "size")
N_NUMBERS = 3  # the last columns


@overload
def gallery(name: None = None) -> Gallery: ...
@overload
def gallery(name: str) -> Entry: ...
def gallery(name: str | None = None) -> Gallery | Entry:
    """Trained agents and recordings that open immediately, without training and without the internet.

    Args:
        name: of an entry; None: a table of all.
    Returns:
        the table, which a notebook shows; or the entry: `.run`, `.recording`, `.card`, `.copy(folder)`.
    Raises:
        UnknownNameError: there is no such entry; the message lists all.
        ConfigError, RunError: its files are not those of an entry.
    """
    shown = Gallery(entry_folders())
    return shown if name is None else shown[name]


class Gallery(Mapping[str, Entry]):
    """The entries by name; in a notebook a table."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        """Args: folders: of each entry by name."""
        self.folders = dict(folders)

    def __getitem__(self, name: str) -> Entry:
        if not isinstance(name, str) or name not in self.folders:
            raise UnknownNameError(unknown("gallery entry", name, tuple(self.folders)))
        return Entry(self.folders[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.folders)

    def __len__(self) -> int:
        return len(self.folders)

    def rows(self) -> list[tuple[str, ...]]:
        """A line for each entry, as in HEADER; of one that cannot be read, why."""
        return [_row(name, folder) for name, folder in self.folders.items()]

    def to_json(self) -> list[dict[str, str]]:
        """The rows, for other programs, with each entry's folder."""
        folders = self.folders.values()
        return [dict(zip(HEADER, row)) | {"folder": str(folder)} for row, folder in zip(self.rows(), folders)]

    def __repr__(self) -> str:
        lines = [f"  {name:<24} {what}" for name, what, *_ in self.rows()]
        return "\n".join([f"<Gallery of {len(self)} entries; mnb.gallery(name) opens one>", *lines])

    def _repr_html_(self) -> str:
        note = "mnb.gallery(name) opens one: .run, .recording, .copy(folder). Returns are of the last checkpoint"
        rows = [(*row[:-N_NUMBERS], *map(_unbroken, row[-N_NUMBERS:])) for row in self.rows()]
        return table_html(HEADER, rows) + note_html(note)


def _unbroken(numbers: str) -> Markup:
    """A line for each group's score, so that no interval is broken in the middle."""
    lines = (Markup("<span style='white-space:nowrap'>{}</span>").format(line) for line in numbers.split(SEPARATOR))
    return Markup("<br>").join(lines)


def _row(name: str, folder: Path) -> tuple[str, ...]:
    try:
        entry = Entry(folder)
        size = format_bytes(entry.size_bytes)
    except (MarlnbError, OSError) as error:
        return (name, f"cannot be read: {error}", *[""] * (len(HEADER) - 2))
    card, recipe = entry.card, entry.recipe
    return (name, recipe.title, recipe.kind, card.env, card.algorithm, entry.score_text, entry.random_text, size)
