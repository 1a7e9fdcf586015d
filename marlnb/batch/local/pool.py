"""Pool: cores or GPUs that jobs take and give back, so that batches side by side on a machine take different ones."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path


class Pool:
    """Members of one kind, handed out so that each is used as little as can be.

    A lock file a member, in a folder that all batches of this user on this machine share, tells who uses it. The
    system drops the locks of a process that dies.
    """

    def __init__(self, kind: str, members: Sequence[str], folder: Path | None = None) -> None:
        """`kind` makes the names of the lock files; `folder` is `lock_folder()` where none is given."""
        self.members = list(members)
        self._kind = kind
        self._folder = folder if folder is not None else lock_folder()
        self._uses = dict.fromkeys(members, 0)
        self._locks: dict[str, int] = {}

    def take(self, count: int, *, share: bool) -> list[str] | None:
        """`count` members that nobody uses; where there are not as many, with `share` the least used, else None."""
        found: list[str] = []
        for member in self.members:
            if len(found) < count and self._uses[member] == 0 and self._lock(member):
                found.append(member)
        if len(found) < count:
            if not share:
                self._unlock(found)
                return None
            others = [member for member in self.members if member not in found]
            found += sorted(others, key=lambda member: self._uses[member])[: count - len(found)]
        for member in found:
            self._uses[member] += 1
        return found

    def give_back(self, members: Sequence[str]) -> None:
        for member in members:
            self._uses[member] -= 1
        self._unlock([member for member in members if self._uses[member] == 0])

    def _lock(self, member: str) -> bool:
        """Whether no other process has it; True where the folder cannot be used."""
        if self._folder is None:
            return True
        path = self._folder / f"{self._kind}-{member.replace('/', '_')}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def lock_folder() -> Path | None:
    """A folder of this user on this machine, in the system's folder for temporary files; None where it is not ours."""
    folder = Path(tempfile.gettempdir()) / f"marlnb-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        mine = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
    except OSError:
        return None
    return folder if mine else None
