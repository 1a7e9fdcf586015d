"""Results that a notebook computes once and reuses in every attempt: downloads, data sets, recordings of other runs.

A notebook that is killed is executed again from its first cell. `cached` does a piece of work once for all attempts.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from marlnb.errors import RunError
from marlnb.paths import expanded
from marlnb.training.runs.files import CACHE
from marlnb.training.runs.lock import wait_for_lock

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=, -]{0,199}")
_UNFINISHED = ".making-"


def cached(folder: str | os.PathLike[str], name: str, make: Callable[[Path], object]) -> Path:
    """Path of the file or folder `<folder>/cache/<name>`. If it does not exist, `make` creates it.

    `make(path)` writes a file or creates a folder at the temporary path that it receives. The path is renamed when
    `make` returns, so the result is always complete: a process that is killed, or fails, leaves nothing. If several
    jobs share the folder, one of them calls `make` and the others wait for it.

    Args:
        folder: of a run, or any other that outlives an attempt, such as one that several jobs share.
        name: letters, digits and `_.+=, -`. A different name is a different piece of work.
        make: creates the file or folder. Its exceptions propagate.
    Raises:
        RunError: the name is not a valid file name, `make` created nothing, or the file system has no locks.
    """
    if not _NAME.fullmatch(name):
        raise RunError(
            f"cached: invalid name {name!r}; valid: letters, digits and _.+=, - without a dot or slash at the start"
        )
    cache = expanded(folder) / CACHE
    path = cache / name
    if path.exists():
        return path
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with wait_for_lock(cache / f".{name}.lock") as supported:
        if not supported:
            raise RunError(f"cached: the file system of {cache} has no locks; choose a folder on another one")
        if not path.exists():
            _make(path, make)
    return path


def _make(path: Path, make: Callable[[Path], object]) -> None:
    unfinished = path.with_name(f"{_UNFINISHED}{path.name}")
    _remove(unfinished)  # left by a process that was killed
    try:
        make(unfinished)
        if not unfinished.exists():
            raise RunError(f"cached: make(path) created nothing for {path.name!r}; it must write to the path it gets")
        unfinished.rename(path)
    finally:
        _remove(unfinished)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
