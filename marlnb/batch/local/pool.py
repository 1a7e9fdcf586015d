"""A pool of cores or GPUs that jobs acquire and release, so that parallel batches on a machine use different ones."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class Pool:
    """Hands out members of one kind, the least used first.

    A member in use has a locked file in a folder that all batches of this user on this machine share. The system
    releases the locks of a process that dies.

    Attributes:
        members: names of the cores or GPUs.
    """

    def __init__(self, kind: str, members: Sequence[str], folder: Path | None = None) -> None:
        """A pool.

        Args:
            kind: "core" or "gpu", for the names of the lock files.
            members: names of the cores or GPUs.
            folder: of the lock files; None: `lock_folder()`.
        """
        self.members = list(members)
        self._kind = kind
        self._folder = folder if folder is not None else lock_folder()
        self._uses = dict.fromkeys(members, 0)
        self._locks: dict[str, int] = {}

    def acquire(self, count: int, *, share: bool) -> list[str] | None:
        """`count` unused members. If fewer are unused: with `share` the least used ones as well, otherwise None."""
        acquired: list[str] = []
        for member in self.members:
            if len(acquired) < count and self._uses[member] == 0 and self._lock(member):
                acquired.append(member)
        if len(acquired) < count:
            if not share:
                self._unlock(acquired)
                return None
            others = [member for member in self.members if member not in acquired]
            acquired += sorted(others, key=lambda member: self._uses[member])[: count - len(acquired)]
        for member in acquired:
            self._uses[member] += 1
        return acquired

    def release(self, members: Sequence[str]) -> None:
        for member in members:
            self._uses[member] -= 1
        self._unlock([member for member in members if self._uses[member] == 0])

    def _lock(self, member: str) -> bool:
        """Whether the lock was acquired: no other process holds it. True if no lock file can be made."""
        if self._folder is None:
            return True
        descriptor = _open_lock(self._folder / f"{self._kind}-{member.replace('/', '_')}")
        if descriptor is None:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:  # a file system without locks
            pass
        self._locks[member] = descriptor
        return True

    def _unlock(self, members: Sequence[str]) -> None:
        for member in members:
            if member in self._locks:
                os.close(self._locks.pop(member))


def _open_lock(path: Path) -> int | None:
    """A descriptor of a lock file; None if it cannot be made. Its folder is made again if `/tmp` was cleaned."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with suppress(OSError):
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700)
            return os.open(path, flags, 0o600)
    return None


def lock_folder() -> Path | None:
    """This user's folder of locks in the system's temporary folder; None if it belongs to another user."""
    folder = Path(tempfile.gettempdir()) / f"marlnb-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        is_own = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
    except OSError:
        return None
    return folder if is_own else None
