"""Notes of which files were inspected, for later kernels: small files in the user's cache.

A note belongs to a file's path, inode, size and times, among them that of its last change, which cannot be set back;
and to the program that inspected it. A file that changed a moment ago gets none, since the clock of a file system is
coarse. The folder is `$MARLNB_DATA_DIR/inspected`, or else `~/.cache/marlnb/inspected`. Where notes cannot be written,
every kernel inspects again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from marlnb.trust import DATA_VARIABLE

MIN_AGE_S = 2.0
MAX_NOTES = 2000


def note_of(path: Path, program: Path) -> Path | None:
    """Where the note of a file is, as the file is now; None if it should have none."""
    status = path.stat()
    if time.time() - status.st_ctime < MIN_AGE_S:
        return None
    times = status.st_mtime_ns, status.st_ctime_ns
    key = repr((str(path.resolve()), status.st_dev, status.st_ino, status.st_size, times)).encode()
    try:
        user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # the home folder is unknown
        return None
    cache = Path(os.environ.get(DATA_VARIABLE) or user_cache / "marlnb")
    return cache / "inspected" / hashlib.sha256(key + program.read_bytes()).hexdigest()


def noted_sources(note: Path | None) -> frozenset[str] | None:
    """The sources that an earlier kernel found in a file; None without a note."""
    try:
        sources = None if note is None else json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return frozenset(map(str, sources)) if isinstance(sources, list) else None


def write_note(note: Path | None, sources: Collection[str]) -> None:
    """Notes that a file was inspected, and the sources that it has.

    Args:
        note: from before the inspection, so that a change meanwhile is noticed.
    """
    if note is None:
        return
    with suppress(OSError):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = note.with_name(f".{note.name}.{os.getpid()}")
        part.write_text(json.dumps(sorted(sources)), encoding="utf-8")
        part.replace(note)
        _drop_oldest(note.parent)


def _drop_oldest(folder: Path) -> None:
    """Deletes the older half of the notes when there are too many."""
    notes = list(os.scandir(folder))
    if len(notes) > MAX_NOTES:
        for entry in sorted(notes, key=lambda entry: entry.stat().st_mtime)[: MAX_NOTES // 2]:
            os.unlink(entry)
