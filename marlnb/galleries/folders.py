"""Where galleries are: in marlnb, and in the user's own data folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from marlnb.galleries.card import CARD
from marlnb.trust import data_folder

PACKAGE = Path(__file__).parent.parent
INSTALLED = PACKAGE / "galleries" / "entries"  # in the wheel: the smaller entries
CHECKOUT = PACKAGE.parent / "data"  # in a clone of the repository: all of them


def own_folder() -> Path:
    """Where `marlnb gallery add` copies entries. Raises RuntimeError: the home folder is unknown."""
    return data_folder() / "gallery"


def gallery_folders() -> list[Path]:
    """The folders of the galleries that exist: marlnb's, then the user's."""
    folders = [INSTALLED if INSTALLED.is_dir() else CHECKOUT]
    with suppress(RuntimeError):
        folders.append(own_folder())
    return [folder for folder in folders if folder.is_dir()]


def entry_folders() -> dict[str, Path]:
    """The folder of each entry, by name. Of two with the same name marlnb's counts."""
    by_name: dict[str, Path] = {}
    for gallery in gallery_folders():
        for card in sorted(gallery.glob(f"*/{CARD}")):
            by_name.setdefault(card.parent.name, card.parent)
    return by_name
