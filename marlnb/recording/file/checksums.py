"""Checksums of a recording's bytes, after the end of HDF5's own: changed values are noticed before they are used.

Each chunk of a dataset with one row per step is one range; what lies between the chunks, HDF5's structure and the small
tables, makes the other ranges. Every range has a CRC-32. The structure is checked when a recording is opened, before
HDF5 reads it; a chunk is checked when its rows are first read. HDF5 ignores bytes after its end, and cuts them off when
another program changes the file: such a file, like one of an older version or of a killed writer, has no checksums.

    file = HDF5 | table: (stop, crc, is_structure) per range | footer: bytes of HDF5, ranges, crc of the table, magic
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np

from marlnb.display.formatting import marlnb_command
from marlnb.errors import RecordingError
from marlnb.recording.file.layout import datasets_below, row_paths

MAGIC = b"marlnb-checksums"
FOOTER = struct.Struct("<QQI16s")  # bytes of HDF5, ranges, crc of the table, magic
RANGE = np.dtype([("stop", "<u8"), ("crc", "<u4"), ("is_structure", "?")])
MAX_RANGE_BYTES = 1024 * 1024
READ_WHOLE = ("steps/t", "steps/episode", "steps/env_id")  # read without LabelledArray, so checked on opening
Ranges = Sequence[tuple[int, int]]
"""(start, stop) in bytes from the file's beginning."""


class Checksums:
    """The checksums of one file. Each range is checked once.

    Attributes:
        path: the file.
        is_structure: `[range]` bool.
    """

    def __init__(self, path: Path, table: np.ndarray) -> None:
        self.path = path
        self._stops, self._crcs, self.is_structure = table["stop"].astype(np.int64), table["crc"], table["is_structure"]
        self._starts = np.concatenate([[0], self._stops[:-1]])
        self._is_checked = np.zeros(len(table), bool)
        self._checked_chunks: dict[str, np.ndarray] = {}

    @staticmethod
    def read(path: Path) -> Checksums | None:
        """The checksums of a file; None where it has none.

        Raises:
            RecordingError: the table of checksums is damaged.
        """
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - FOOTER.size))
            footer = file.read(FOOTER.size)
            if len(footer) < FOOTER.size or not footer.endswith(MAGIC):
                return None
            hdf5_bytes, n_ranges, crc, _ = FOOTER.unpack(footer)
            is_whole = size == hdf5_bytes + n_ranges * RANGE.itemsize + FOOTER.size
            file.seek(hdf5_bytes if is_whole else 0)
            body = file.read(n_ranges * RANGE.itemsize) if is_whole else b""
        table = np.frombuffer(body, RANGE)
        stops = [0, *table["stop"].tolist()]
        if not is_whole or zlib.crc32(body) != crc or stops != sorted(stops) or stops[-1] != hdf5_bytes:
            raise RecordingError(
                f"{path} is damaged: its table of checksums does not fit its {size:,} bytes; {how_to_repair(path)}"
            )
        return Checksums(path, table)

    def check_structure(self) -> None:
        """Checks everything but the chunks of rows.

        Raises:
            RecordingError: something differs from what was written.
        """
        self._check(np.flatnonzero(self.is_structure), "its structure")

    def check(self, start: int, stop: int, what: str) -> None:
        """Checks the ranges that overlap these bytes.

        Raises:
            RecordingError: something differs from what was written; the message says that `what` did.
        """
        first, last = np.searchsorted(self._stops, (start, stop - 1), side="right")
        self._check(np.arange(first, min(last + 1, len(self._stops))), what)

    def check_box(self, dataset: h5py.Dataset, box: Ranges) -> None:
        """Checks the chunks of a box of a dataset, [(start, stop), ...] by axis.

        Raises:
            RecordingError: something differs from what was written.
        """
        chunk = dataset.chunks
        if chunk is None:  # then it is part of the structure
            return
        counts = [-(-length // size) for length, size in zip(dataset.shape, chunk)]
        is_checked = self._checked_chunks.setdefault(dataset.name, np.zeros(counts, bool))
        window = tuple(slice(start // size, -(-stop // size)) for (start, stop), size in zip(box, chunk))
        firsts = np.array([part.start for part in window])
        for index in np.argwhere(~is_checked[window]) + firsts:
            info = dataset.id.get_chunk_info_by_coord(tuple(int(i * size) for i, size in zip(index, chunk)))
            if info.byte_offset is not None:
                rows = f"{dataset.name[1:]} from row {index[0] * chunk[0]:,} on"
                self.check(info.byte_offset, info.byte_offset + info.size, rows)
        is_checked[window] = True

    def damaged_ranges(self) -> list[tuple[int, int, bool]]:
        """(start, stop, is_structure) of all ranges that differ from what was written."""
        indices = self._differing(np.arange(len(self._stops)))
        return [(int(self._starts[i]), int(self._stops[i]), bool(self.is_structure[i])) for i in indices]

    def _check(self, indices: np.ndarray, what: str) -> None:
        wrong = self._differing(indices[~self._is_checked[indices]])
        if wrong:
            start, stop = int(self._starts[wrong[0]]), int(self._stops[wrong[0]])
            raise RecordingError(
                f"{self.path} is damaged: {what} is not what was written (checksum of bytes {start:,} to {stop:,}); "
                f"{how_to_repair(self.path)}"
            )
        self._is_checked[indices] = True

    def _differing(self, indices: np.ndarray) -> list[int]:
        lengths = self._stops[indices] - self._starts[indices]
        buffer = memoryview(bytearray(int(lengths.max(initial=0))))
        wrong = []
        with open(self.path, "rb", buffering=0) as file:
            for index, start, length in zip(indices.tolist(), self._starts[indices].tolist(), lengths.tolist()):
                file.seek(start)
                part = buffer[:length]
                if file.readinto(part) != length or zlib.crc32(part) != self._crcs[index]:
                    wrong.append(index)
        return wrong


def has_checksums(path: Path) -> bool:
    """Whether a file ends with checksums, damaged or not."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(MAGIC)))
        return file.read() == MAGIC


def how_to_repair(path: Path) -> str:
    return f"`{marlnb_command('repair', path)}` keeps the intact episodes"


def chunk_ranges(file: h5py.File) -> list[tuple[int, int]]:
    """The bytes of every chunk that is checked when its rows are read, in the order of the file.

    Compressed frames are among them: their format has a checksum of its own.
    """
    ranges: list[tuple[int, int]] = []
    frames = [f"frames/{name}" for name in datasets_below(file, "frames")]
    for path in [name for name in (*row_paths(file), *frames) if name not in READ_WHOLE]:
        if file[path].chunks is not None:
            file[path].id.chunk_iter(lambda info: ranges.append((info.byte_offset, info.byte_offset + info.size)))
    return sorted(ranges)


def append_checksums(
    handle: int, size_bytes: int, chunks: Ranges = (), known: Mapping[int, tuple[int, int]] | None = None
) -> int:
    """Appends the checksums of a file's first bytes.

    Args:
        handle: of the file, open for reading and writing.
        size_bytes: of HDF5.
        chunks: as `chunk_ranges` returns them.
        known: by start, (length, crc) of what was written last; other ranges are read.
    Returns:
        the file's new size.
    """
    table = np.array(
        [
            (stop, _known_crc(known or {}, start, stop) or _crc(handle, start, stop), is_structure)
            for start, stop, is_structure in _partition(size_bytes, chunks)
        ],
        RANGE,
    )
    body = table.tobytes()
    content = body + FOOTER.pack(size_bytes, len(table), zlib.crc32(body), MAGIC)
    written = 0
    while written < len(content):
        written += os.pwrite(handle, content[written:], size_bytes + written)
    return size_bytes + len(content)


def _partition(size_bytes: int, chunks: Ranges) -> Iterable[tuple[int, int, bool]]:
    """(start, stop, is_structure) of adjacent ranges that cover the file, one for each chunk."""
    position = 0
    for start, stop in [*chunks, (size_bytes, size_bytes)]:
        edges = [*range(position, start, MAX_RANGE_BYTES), start]
        yield from ((first, last, True) for first, last in pairwise(edges) if first < last)
        if start < stop:
            yield start, stop, False
        position = stop


def _known_crc(known: Mapping[int, tuple[int, int]], start: int, stop: int) -> int | None:
    length, crc = known.get(start, (0, 0))
    return crc if length == stop - start else None


def _crc(handle: int, start: int, stop: int) -> int:
    return zlib.crc32(os.pread(handle, stop - start, start))
