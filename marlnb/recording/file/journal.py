"""JournaledFile: the file under HDF5 while a recording is written, which goes from one whole state to the next.

HDF5 changes the parts of its index in place, one by one; a process killed between two of them leaves a file that lies
about its data (6 of 120 files, killing a process that did nothing but flush). Here new space is written at once, since
nothing refers to it yet, but changes of what is there already are held back until `commit` has them all in a journal
beside the file. Whoever opens the recording next completes a commit that a kill cut short.
"""

from __future__ import annotations

import fcntl
import io
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

from marlnb.errors import RecordingError

MAGIC = b"marlnb-journal-1"
HEADER = struct.Struct("<16sQI")  # magic, bytes of the body, its crc32
ENTRY = struct.Struct("<QQ")  # offset, length
LOCKLESS_WAIT_S = 1.0


class JournaledFile:
    """A file for h5py's file-object driver: a new one, or an `existing` one to which something is added.

    Raises:
        FileExistsError, OSError: it is there already or cannot be made, or be locked (with `locking` true or None).
    """

    def __init__(self, path: Path, locking: bool | str | None, *, existing: bool = False) -> None:
        self.path, self.journal_path = path, journal_of(path)
        self._handle = os.open(path, os.O_RDWR | (0 if existing else os.O_CREAT | os.O_EXCL), 0o644)
        if locking is not False:
            _lock(self._handle, optional=locking == "best-effort")
        self._journal = os.open(self.journal_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._position = 0
        self._size = self._whole = os.fstat(self._handle).st_size
        self._held: list[tuple[int, bytes]] = []

    def claim(self, size_bytes: int) -> None:
        """Makes room on the disk, so that no write up to there can fail; OSError where there is none."""
        os.posix_fallocate(self._handle, 0, size_bytes)

    def commit(self) -> None:
        """Makes what was written since the last one the file's state, whole or not at all."""
        body = b"".join(part for offset, data in self._held for part in (ENTRY.pack(offset, len(data)), data))
        os.pwrite(self._journal, HEADER.pack(MAGIC, len(body), zlib.crc32(body)) + body, 0)
        if os.fstat(self._handle).st_size < self._size:
            os.ftruncate(self._handle, self._size)
        for offset, data in self._held:
            _write_all(self._handle, data, offset)
        os.ftruncate(self._journal, 0)
        self._held.clear()
        self._whole = self._size

    def close_whole(self) -> None:
        """Commits, gives back room that was claimed and not used, and closes; on an error the last state stays."""
        try:
            self.commit()
            os.ftruncate(self._handle, self._size)
            self.journal_path.unlink()
        finally:
            os.close(self._journal)
            os.close(self._handle)

    def close_as_it_was(self) -> None:
        """Closes without what was written since the last commit."""
        self._held.clear()
        os.ftruncate(self._handle, self._whole)
        self.journal_path.unlink(missing_ok=True)
        os.close(self._journal)
        os.close(self._handle)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = self._size + offset if whence == io.SEEK_END else offset
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        """New space at once, anything else when it is committed."""
        offset, length = self._position, len(data)
        if offset >= self._whole:
            _write_all(self._handle, data, offset)
        else:
            self._held.append((offset, bytes(data)))
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
        found = os.pread(self._handle, len(view), start)
        view[: len(found)] = found
        view[len(found) :] = bytes(len(view) - len(found))
        for offset, data in self._held:
            first, last = max(start, offset), min(stop, offset + len(data))
            if first < last:
                view[first - start : last - start] = data[first - offset : last - offset]
        self._position = stop
        return len(view)

    def truncate(self, size_bytes: int) -> int:
        """HDF5 says where its space ends; the disk's is given back on closing."""
        self._size = size_bytes
        return size_bytes

    def flush(self) -> None:
        """Nothing: `commit` is called when a state is whole."""


def journal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.journal")


def complete_commit(path: Path, *, locking: bool | str | None) -> None:
    """Finishes a commit that a kill cut short; leaves a file alone that somebody still writes.

    Raises:
        RecordingError: there is one, and the file cannot be written.
    """
    journal = journal_of(path)
    if not path.exists() or not journal.exists():
        return
    body = _read_journal(journal)
    if locking is False and body:  # nothing tells whether its writer lives, but a living one is done in no time
        time.sleep(LOCKLESS_WAIT_S)
        body = body if body == _read_journal(journal) else b""
    if not body and locking is False:
        return
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as error:
        if not body:
            return
        raise RecordingError(
            f"{path} was left in the middle of a write; it must be opened once by someone who may write it "
            f"({error.strerror})"
        ) from error
    try:
        _lock(handle, optional=locking is not True)
        for offset, data in _entries(body):
            _write_all(handle, data, offset)
        journal.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(handle)


def _read_journal(path: Path) -> bytes:
    """The body of a whole journal; nothing where it was never finished, or has been applied."""
    content = path.read_bytes()
    if len(content) < HEADER.size:
        return b""
    magic, length, checksum = HEADER.unpack_from(content)
    body = content[HEADER.size : HEADER.size + length]
    return body if magic == MAGIC and len(body) == length and zlib.crc32(body) == checksum else b""


def _entries(body: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(body):
        offset, length = ENTRY.unpack_from(body, at)
        at += ENTRY.size
        found.append((offset, body[at : at + length]))
        at += length
    return found


def _lock(handle: int, *, optional: bool) -> None:
    """HDF5's own kind of lock, so that its readers see it; raises BlockingIOError where another holds it."""
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
