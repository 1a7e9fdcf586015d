"""add: copies an entry that another person made into the user's own gallery."""

from __future__ import annotations

import os
import re

from marlnb.errors import ConfigError
from marlnb.galleries.card import check_files
from marlnb.galleries.entry import Entry
from marlnb.galleries.folders import entry_folders, own_folder
from marlnb.paths import expanded
from marlnb.training.runs.run import Run

MAX_BYTES = 2_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add(folder: str | os.PathLike[str], *, name: str = "") -> Entry:
    """Copies an entry into the user's gallery, after comparing each file with the card. None of its code is run.

    Args:
        folder: an entry, as `make` writes it.
        name: in the gallery; empty: the folder's.
    Raises:
        ConfigError: the name is taken or not valid, the folder is too large or holds links, or its card or recipe is
            not valid.
        RunError: files are missing, more or changed, or a checkpoint or its experiment cannot be read.
    """
    entry = Entry(expanded(folder).resolve())
    name = name or entry.name
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a name in the gallery has letters, digits, '.', '_' and '-', at most 64; got {name!r}")
    if name in entry_folders():
        raise ConfigError(f"the gallery has an entry {name!r} already, in {entry_folders()[name]}; give another name")
    if entry.size_bytes > MAX_BYTES:
        raise ConfigError(f"{folder} has {entry.size_bytes:,} bytes; at most {MAX_BYTES:,} are copied")
    check_files(entry.path, entry.card)
    if isinstance(entry.run, Run):
        entry.run.checkpoint("last").load()
    return entry.copy(own_folder() / name)
