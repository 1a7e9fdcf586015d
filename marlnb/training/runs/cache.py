"""What cells before a training make once: downloads, data sets, recordings of other runs.

A notebook that is killed is executed again from the top. `keep` does a piece of work once over all attempts.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from marlnb.errors import RunError
from marlnb.training.runs.files import KEPT
from marlnb.training.runs.lock import waiting_for

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=, -]{0,199}")
_MAKING = ".making-"


def keep(folder: str | os.PathLike[str], name: str, make: Callable[[Path], object]) -> Path:
    """The file or folder `<folder>/kept/<name>`, made by `make` if it is not there yet.

    `make(path)` writes a file, or makes a folder, at the path that it is given, which is renamed when it returns. So
    what is there is whole: one that was killed or failed halfway leaves nothing. Of several jobs that share a folder
    one makes it and the others wait.

    Args:
        folder: a run's, or any other that outlives the attempts, as one that several jobs share.
        name: of letters, digits and `_.+=, -`; another name is another piece of work.
    Raises:
        RunError: the name cannot be a file's, or `make` made nothing. What `make` raises is passed on.
    """
    if not _NAME.fullmatch(name):
        raise RunError(f"keep: {name!r} cannot be a name; valid are letters, digits and _.+=, - and not a dot first")
    kept = Path(folder).expanduser() / KEPT
    path = kept / name
    if path.exists():
        return path
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _one_at_a_time(kept / f".{name}.lock"):
        if not path.exists():
            _make(path, make)
    return path


def _make(path: Path, make: Callable[[Path], object]) -> None:
    making = path.with_name(f"{_MAKING}{path.name}")
    _remove(making)  # what a killed one left
    try:
        make(making)
        if not making.exists():
            raise RunError(f"keep: nothing was made for {path.name!r}; the function gets a path, and is to write there")
        making.rename(path)
    finally:
        _remove(making)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits for whoever holds the lock.

    Raises:
        RunError: the file system has no locks, so that two jobs could make the same thing at once.
    """
    with waiting_for(lock) as supported:
        if not supported:
            raise RunError(f"keep: {lock.parent} lies on a file system without locks; keep it elsewhere")
        yield
