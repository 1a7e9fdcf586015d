"""Files that this user may not read or change, also where the tests run as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ANOTHER_USER = 65534


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that other users can search."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@contextmanager
def without_root() -> Iterator[None]:
    """Root, who may read and change everything, is another user meanwhile."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(ANOTHER_USER, ANOTHER_USER, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
