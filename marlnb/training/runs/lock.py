"""One trainer per run folder: a lock that the kernel releases when its holder dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from marlnb.disk import process_alive, writing
from marlnb.errors import RunError
from marlnb.text_files import read_text

UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
RETRY_S = 0.5
HEARTBEAT_S = 600.0


class RunLock:
    """Holds `<run>/lock`, which names its holder.

    If the file system has no locks, a holder counts as alive while its process exists (same host), or if the file was
    touched in the last ten minutes (another host); `touch` is the sign of life.
    """

    def __init__(self, path: Path) -> None:
        """Raises RunError if another process, or another trainer in this one, holds the lock."""
        self.path = path
        with writing(path):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                self.release()
                raise RunError(f"{path} is a pipe or a device, not a lock; delete it")
            supported = _acquire(self._descriptor)
            if not supported and _holder_alive(path):
                raise BlockingIOError
        except BlockingIOError:
            os.close(self._descriptor)
            self._descriptor = None
            holder = read_holder(path)
            raise RunError(
                f"{path.parent} is being trained already, by process {holder.get('pid', '?')} on "
                f"{holder.get('host', '?')}; stop that run first, for example by creating {path.parent / 'STOP'}"
            ) from None
        try:
            with writing(path):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        except OSError:
            self.release()
            raise

    def touch(self) -> None:
        if self._descriptor is not None:
            os.utime(self._descriptor)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def release(self) -> None:
        """Releases the lock. Safe to call twice."""
        if self._descriptor is not None:
            with suppress(OSError):  # a disk that no longer works
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def wait_for_lock(path: Path) -> Iterator[bool]:
    """Waits for the lock file and holds it during the block. Yields False if the file system has no locks.

    The kernel releases it when its holder dies, however it dies.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            supported = True
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            supported = False
        yield supported
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    if not path.is_file():
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # deleted meanwhile
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return _holder_alive(path)
    finally:
        os.close(descriptor)
    return False


def read_holder(path: Path) -> dict[str, object]:
    """Who wrote the lock file; {} if unknown."""
    try:
        holder = json.loads(read_text(path, follow=False))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _acquire(descriptor: int) -> bool:
    """Takes the lock and returns True; False if the file system has no locks."""
    deadline = time.monotonic() + RETRY_S  # `is_locked` in another process holds it for microseconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return False
            raise


def _holder_alive(path: Path) -> bool:
    holder = read_holder(path)
    pid = holder.get("pid")
    if not isinstance(pid, int):
        return False
    if holder.get("host") == socket.gethostname():
        return process_alive(pid)
    return abs(time.time() - path.stat().st_mtime) < HEARTBEAT_S  # a clock that was set back is no sign of life
