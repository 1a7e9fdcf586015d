"""JournaledFile: the file below HDF5 while a recording is written. It goes from one valid state to the next.

HDF5 changes the parts of its index in place, one after the other. A process that is killed between two of them leaves
an index that contradicts the data (6 of 120 files, when killing a process that only flushed). Here, new space is
written at once, since nothing refers to it yet. Changes of existing bytes are held back until `commit` has written all
of them to a journal next to the file. The next process that opens the recording completes an interrupted commit.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from marlnb.disk import problem_of, publish, writing
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.recording.file.checksums import Ranges, append_checksums
from marlnb.text_files import read_bytes

MAGIC = b"marlnb-journal-1"
HEADER = struct.Struct("<16sQI")  # magic, bytes of the body, its crc32
ENTRY = struct.Struct("<QQ")  # offset, length
LOCKLESS_WAIT_S = 1.0
SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAX_COMMIT_BYTES = 64 * 1024 * 1024  # beyond the size of the recording: a journal holds changes of its bytes
MIN_CHECKED_BYTES = 512  # HDF5 writes its structure in smaller parts
Item = TypeVar("Item")


class JournaledFile:
    """A file for h5py's file-object driver. A `with` block around that of `h5py.File` commits and closes it.

    Args:
        locking: HDF5's file locking, as h5py takes it.
        existing: whether to open an existing file instead of creating a new one.
    Raises:
        FileExistsError, OSError: the file exists, cannot be created, or cannot be locked (with `locking` True or None).
    Attributes:
        path: the file.
        error: of the first call that the disk refused.
        is_closed: whether it was closed; what HDF5 writes then goes nowhere.
    """

    def __init__(self, path: Path, locking: bool | str | None, *, existing: bool = False) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | (0 if existing else os.O_CREAT | os.O_EXCL), 0o644)
        try:
            if locking is not False:
                _lock(self._handle, optional=locking == "best-effort")
        except OSError:
            os.close(self._handle)
            raise
        self.error: OSError | None = None
        self.is_closed = self._is_discarded = self._is_applying = False
        self._journal: int | None = None  # a new file has none until it changes what is committed
        self._position = 0
        self._size = self._committed_size = os.fstat(self._handle).st_size
        self._pending: list[tuple[int, bytes]] = []
        self._crcs: dict[int, tuple[int, int]] = {}  # by offset, length and crc of what was written there last

    def __enter__(self) -> JournaledFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Commits and closes; after an exception, closes without what was not committed.

        Raises:
            OSError: the disk refused a write, whatever HDF5 made of it.
        """
        if error is None or self.error is not None:
            self.commit_and_close()
        else:
            self.discard_and_close()

    def until_refused(self, items: Iterable[Item]) -> Iterator[Item]:
        """What is to be written; raises OSError after the disk refused a write, since the rest would fill memory."""
        for item in items:
            if self.error is not None:
                raise self.error
            yield item

    @property
    def allocated_bytes(self) -> int:
        """That the file has on the disk."""
        return os.fstat(self._handle).st_blocks * 512

    def claim(self, size_bytes: int) -> None:
        """Reserves disk space for so many bytes, so that no write in it can fail; OSError where the disk is full."""
        os.posix_fallocate(self._handle, 0, size_bytes)

    def publish(self, path: Path) -> None:
        """Gives a new, committed file its name. Raises FileExistsError if there is a file of that name."""
        if not path.exists():
            journal_of(path).unlink(missing_ok=True)  # of an earlier file of that name
        publish(self.path, path)
        self.path = path

    def commit(self) -> None:
        """Applies everything written since the last commit, completely or not at all.

        Raises:
            OSError: the disk refuses this, or refused a write before.
        """
        if self.error is not None:
            raise self.error
        with self._noting_error():
            if self._pending:
                self._write_journal()
                self._is_applying = True
            if os.fstat(self._handle).st_size < self._size:
                os.ftruncate(self._handle, self._size)
            for offset, data in self._pending:
                _write_all(self._handle, data, offset)
            self._is_applying = False
            if self._journal is not None:
                os.ftruncate(self._journal, 0)
            self._pending.clear()
            self._committed_size = self._size

    def commit_and_close(self, chunks: Ranges | None = None) -> None:
        """Commits, frees reserved space that is not used, and closes. On an error the last committed state remains.

        Args:
            chunks: as `checksums.chunk_ranges` returns them; None: the file gets no checksums.
        """
        try:
            self.commit()
            with self._noting_error():
                os.ftruncate(self._handle, self._size if chunks is None else self._append_checksums(chunks))
                journal_of(self.path).unlink(missing_ok=True)
        finally:
            self._close()

    def discard(self) -> None:
        """From here on writes stay in memory, so that HDF5 can close a file that the disk refuses to take."""
        self._is_discarded = True

    def discard_and_close(self) -> None:
        """Closes without the writes since the last commit. A commit that had begun is completed on opening."""
        self.discard()
        with suppress(OSError):
            if not (self._is_applying or self.is_closed):
                os.ftruncate(self._handle, self._committed_size)
                journal_of(self.path).unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self._handle)
            if self._journal is not None:
                os.close(self._journal)

    def _write_journal(self) -> None:
        body = b"".join(part for offset, data in self._pending for part in (ENTRY.pack(offset, len(data)), data))
        if self._journal is None:
            how = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            self._journal = os.open(journal_of(self.path), how, 0o644)
        _write_all(self._journal, HEADER.pack(MAGIC, len(body), zlib.crc32(body)) + body, 0)

    @contextmanager
    def _noting_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error
            self.discard()
            raise

    def _append_checksums(self, chunks: Ranges) -> int:
        """Returns the file's new size. On a full disk the recording stays whole, without checksums."""
        try:
            return append_checksums(self._handle, self._size, chunks, self._crcs)
        except OSError:
            return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = self._size + offset if whence == io.SEEK_END else offset
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        """Writes new space at once; holds back changes of committed bytes until `commit`.

        Where the disk refuses, this and all later writes stay in memory, and `commit` raises: HDF5 crashes where a
        write raises in the middle of its work, or where it reads something else than it wrote.
        """
        offset, length = self._position, len(data)
        if self.is_closed:
            return length
        if length >= MIN_CHECKED_BYTES:
            self._crcs[offset] = (length, zlib.crc32(data))
        if offset >= self._committed_size and not self._is_discarded:
            with suppress(OSError), self._noting_error():
                _write_all(self._handle, data, offset)
        if offset < self._committed_size or self._is_discarded:
            self._pending.append((offset, bytes(data)))
        self._position += length
        self._size = max(self._size, self._position)
        return length

    def read(self, length: int) -> bytes:
        buffer = bytearray(length)
        self.readinto(buffer)
        return bytes(buffer)

    def readinto(self, buffer: Any) -> int:
        start, view = self._position, memoryview(buffer)
        stop = start + len(view)
        content = b""
        with suppress(OSError), self._noting_error():
            content = os.pread(self._handle, len(view), start)
        view[: len(content)] = content
        view[len(content) :] = bytes(len(view) - len(content))
        for offset, data in self._pending:
            first, last = max(start, offset), min(stop, offset + len(data))
            if first < last:
                view[first - start : last - start] = data[first - offset : last - offset]
        self._position = stop
        return len(view)

    def truncate(self, size_bytes: int) -> int:
        """Sets where HDF5's space ends. The disk's space is freed on closing."""
        self._size = size_bytes
        return size_bytes

    def flush(self) -> None:
        """Does nothing: `commit` is called when the state is valid."""


def journal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.journal")


def complete_commit(path: Path, *, locking: bool | str | None) -> None:
    """Completes a commit that a kill interrupted. A file that is still being written is left unchanged.

    Raises:
        RecordingError: a commit is incomplete, and the file cannot be written. It is completed by the next opening.
    """
    journal = journal_of(path)
    if not path.is_file() or not journal.is_file():
        return
    body = _read_journal(journal, path)
    if locking is False and body:  # without locks, a live writer shows by finishing its commit within a second
        time.sleep(LOCKLESS_WAIT_S)
        body = body if body == _read_journal(journal, path) else b""
    if not body and locking is False:
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)  # of a link, the journal next to it would change another file
    except OSError as error:
        if not body:
            return
        if error.errno == errno.ELOOP:
            raise RecordingError(
                f"{path} is a symbolic link, and {journal} would change the file it leads to; open that file, or move "
                "the journal away"
            ) from error
        raise RecordingError(
            f"{path} has an incomplete write; open it once where it can be written: {problem_of(error, path)}"
        ) from error
    try:
        _lock(handle, optional=locking is not True)
        entries, max_stop = _entries(body), os.fstat(handle).st_size + len(body)
        start = os.pread(handle, len(SIGNATURE), 0)
        if body and any(start) and start != SIGNATURE:  # HDF5 writes the first bytes of a new file last
            raise RecordingError(f"{journal} does not belong to {path}, which is no HDF5 file; move it away")
        if any(offset + len(data) > max_stop for offset, data in entries):
            raise RecordingError(f"{journal} does not belong to {path}: it writes beyond its end; move it away")
        with writing(path, kind=RecordingWriteError, saved="opening it again completes its last write"):
            for offset, data in entries:
                _write_all(handle, data, offset)
            journal.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(handle)


def _read_journal(path: Path, recording: Path) -> bytes:
    """The body of a complete journal; empty where it was never completed or has been applied.

    Raises:
        RecordingError: it cannot be read, or claims much more than one commit to this recording has.
    """
    size = 512 * recording.stat().st_blocks  # on the disk; a file may claim any size
    try:
        content = read_bytes(path, max_bytes=2 * size + MAX_COMMIT_BYTES, follow=False)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}; move it away") from error
    if len(content) < HEADER.size:
        return b""
    magic, length, checksum = HEADER.unpack_from(content)
    body = content[HEADER.size : HEADER.size + length]
    return body if magic == MAGIC and len(body) == length and zlib.crc32(body) == checksum else b""


def _entries(body: bytes) -> list[tuple[int, bytes]]:
    entries, position = [], 0
    while position + ENTRY.size <= len(body):
        offset, length = ENTRY.unpack_from(body, position)
        position += ENTRY.size
        entries.append((offset, body[position : position + length]))
        position += length
    return entries


def is_being_written(path: Path) -> bool:
    """Whether a process is writing a recording's file; False on a file system without locks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def _lock(handle: int, *, optional: bool) -> None:
    """Locks as HDF5 does, so that its readers see the lock; raises BlockingIOError where it is taken."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        if not optional:
            raise


def _write_all(handle: int, data: Any, offset: int) -> None:
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
