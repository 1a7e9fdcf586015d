"""Writing to a disk that may be full or fail, by a process that may be killed between any two calls.

A file appears whole under its name or not at all (`write_atomically`, `replacing`, `publish`), and so does a line
(`append_lines`). Where a disk refuses a write, `writing` raises an error that names the path, the disk and the space.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from marlnb.display.formatting import format_bytes
from marlnb.errors import DiskError, MarlnbError

FULL = (errno.ENOSPC, errno.EDQUOT)
PROBLEMS = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "has no quota left for this user (`quota -s` shows it)",
    errno.EROFS: "is read-only",
    errno.EIO: "does not work (input/output error)",
    errno.EFBIG: "has space, but a limit on the size of files is reached (`ulimit -f` shows it)",
    errno.EACCES: "may not be written to there by this user",
    errno.EPERM: "may not be written to there by this user",
}
NO_FILES = {  # in a folder from elsewhere
    errno.ELOOP: "it is a symbolic link, and what it leads to may not belong to this folder",
    errno.EISDIR: "it is a folder",
    errno.ESPIPE: "it is a pipe",
}
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of file systems without hard links
_HDF5_ERRNO = re.compile(r"errno = (\d+)")


def write_atomically(path: Path, text: str, *, sync: bool = True, in_place: bool = False) -> None:
    """Readers see the old or the new content, never a part.

    Args:
        sync: this holds after a power cut too.
        in_place: where the disk has no room for a second file, overwrite the first in the space that it has.
    Raises:
        DiskError: the disk refuses; the old content is intact.
    """
    data, temporary = text.encode(), path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with writing(path, needed_bytes=len(data)):
            try:
                with open(temporary, "wb") as file:
                    file.write(data)
                    file.flush()
                    if sync:
                        os.fsync(file.fileno())
                temporary.replace(path)
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
    except DiskError as error:
        if not (in_place and error.errno in FULL and _overwrite(path, data)):
            raise


def append_line(path: Path, line: str) -> None:
    """Adds a line to a file. As `append_lines`."""
    append_lines(path, [line])


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Adds lines to a file, all of them or none; after a kill perhaps some. What a kill left of a line is cut off.

    Raises:
        DiskError: the disk refuses; the file is unchanged.
    """
    data = "".join(f"{line}\n" for line in lines).encode()
    with writing(path, needed_bytes=len(data)):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            size = _end_of_last_line(descriptor)
            try:
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def open_log(path: Path) -> BinaryIO:
    """A file to which processes add what they print. Raises DiskError: it is a link, or the disk refuses."""
    with writing(path):
        return os.fdopen(
            os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "ab"
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` where the block ends, and is deleted where it raises.

    What killed processes left at such paths is deleted first.
    """
    for left in left_behind(path):
        left.unlink(missing_ok=True)
    part = temporary_of(path)
    try:
        yield part
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def temporary_of(path: Path, purpose: str = "part") -> Path:
    """Where this process prepares what becomes `path`."""
    return path.with_name(f".{path.name}.{purpose}-{os.getpid()}")


def left_behind(path: Path, purpose: str = "part") -> list[Path]:
    """The temporary files of `path` whose process has ended."""
    prefix = f".{path.name}.{purpose}-"
    names = [name for name in os.listdir(path.parent) if name.startswith(prefix)] if path.parent.is_dir() else []
    processes = {name: name.removeprefix(prefix) for name in names}
    return [path.with_name(name) for name, pid in processes.items() if pid.isdigit() and not process_alive(int(pid))]


def publish(part: Path, path: Path) -> None:
    """Gives a complete file its name, without replacing another one.

    Raises:
        FileExistsError: `path` exists.
    """
    try:
        os.link(part, path)  # unlike a rename, this never replaces a file that appeared in the meantime
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        part.rename(path)
    else:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def writing(
    path: Path, *, kind: type[MarlnbError] = DiskError, saved: str = "", needed_bytes: int = 0
) -> Iterator[None]:
    """Where the disk refuses a write of the block, raises an error that names path, disk and space.

    Args:
        path: what is written.
        kind: the class of the error.
        saved: what is intact all the same, for the message.
        needed_bytes: how much was to be written; 0: unknown, at least a block of the disk.
    """
    try:
        yield
    except MarlnbError:
        raise
    except Exception as error:  # HDF5's errors are of many classes
        number = errno_of(error)
        if number not in PROBLEMS and number not in NO_FILES:
            raise
        problem = problem_of(error, path, needed_bytes)
        named = kind(f"{path} cannot be written: {problem}{f'; {saved}' if saved else ''}")
        if isinstance(named, DiskError):
            named.errno, named.problem = number, problem
        raise named from error


def problem_of(error: BaseException, path: Path, needed_bytes: int = 0) -> str:
    """What is wrong, in words: `the disk /data is full: 0 B free, 3.4 MB needed`."""
    if isinstance(error, DiskError) and error.problem:
        return error.problem
    number = errno_of(error)
    if number not in PROBLEMS:
        return NO_FILES.get(number) or os.strerror(number) if number else str(error)
    facts = [_free_in_words(path)] if number == errno.ENOSPC else []
    if number in FULL and needed_bytes:
        facts.append(f"{format_bytes(needed_bytes)} needed")
    elif number == errno.ENOSPC:
        facts += _least_needed(path)
    return f"the disk {mount_point(path)} {PROBLEMS[number]}{': ' * bool(facts)}{', '.join(facts)}"


def errno_of(error: BaseException | None) -> int:
    """The number of the system's error behind an error; 0 if there is none. HDF5 has it in its text alone."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        if match := _HDF5_ERRNO.search(str(error)):
            return int(match[1])
        error = error.__cause__ or error.__context__
    return 0


def state_of(path: Path) -> str:
    """Why nothing can be written on the disk of `path` now: it is full or read-only; else empty."""
    disk = os.statvfs(_existing(path))
    if disk.f_flag & os.ST_RDONLY:
        return f"the disk {mount_point(path)} {PROBLEMS[errno.EROFS]}"
    return "" if disk.f_bavail else f"the disk {mount_point(path)} {PROBLEMS[errno.ENOSPC]}"


def free_bytes(path: Path) -> int:
    """Free bytes on the disk of `path`, which need not exist."""
    disk = os.statvfs(_existing(path))
    return disk.f_bavail * disk.f_frsize


def mount_point(path: Path) -> Path:
    """The folder at which the disk of `path` is mounted."""
    folder = _existing(path).resolve()
    return next(parent for parent in (folder, *folder.parents) if os.path.ismount(parent))


def process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _existing(path: Path) -> Path:
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if os.path.exists(parent))


def _free_in_words(path: Path) -> str:
    disk, free = os.statvfs(_existing(path)), f"{format_bytes(free_bytes(path))} free"
    no_inodes = disk.f_files > 0 and disk.f_favail == 0  # some file systems count none
    return f"{free}, but it has no inode left for another file (`df -i` shows it)" if no_inodes else free


def _least_needed(path: Path) -> list[str]:
    """In words, where it is not known how much more is needed than there is."""
    disk = os.statvfs(_existing(path))
    if disk.f_files > 0 and disk.f_favail == 0:
        return []  # no space would help
    return ["more is needed" if disk.f_bavail else f"at least {format_bytes(disk.f_frsize)} needed"]


def _overwrite(path: Path, data: bytes) -> bool:
    """Overwrites a file if that needs no more space; returns whether it did."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        if len(data) > status.st_blocks * 512:
            return False
        os.pwrite(descriptor, data.ljust(status.st_size, b"\n"), 0)  # after a kill, nothing of the old text follows
        os.ftruncate(descriptor, len(data))
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _end_of_last_line(descriptor: int) -> int:
    """Cuts off an unfinished line, and returns the size of the rest."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    tail_start = max(0, size - 1024 * 1024)
    end = tail_start + os.pread(descriptor, size - tail_start, tail_start).rfind(b"\n") + 1
    os.ftruncate(descriptor, end)
    return end
