"""Finds the damage in a recording's file, and changes a copy of the file so that it can be opened."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from marlnb.disk import PROBLEMS, errno_of
from marlnb.errors import MarlnbError, RecordingError
from marlnb.recording.file.checksums import Checksums
from marlnb.recording.file.inspection import SIGNATURE, inspect_damaged
from marlnb.recording.file.layout import FORMAT, ROW_TOPS
from marlnb.recording.tools.episode_table import repair_table

ESSENTIAL_PATHS = ("steps/t", "steps/episode")
DAMAGED_GROUP = "damaged"
MAX_VALUE = 1e30  # no network's unit is as large, but one in nine random float32 numbers is
BATCH_BYTES = 32 * 1024 * 1024
MAX_LISTED_PATHS = 4
MAX_GROWTH = 64  # of a truncated file: a header that claims more is damaged itself
SPARE_BYTES = 64 * 1024 * 1024


@dataclass
class Damage:
    """What is wrong with a recording.

    Attributes:
        problems: descriptions.
        lost_episodes: numbers of the episodes that are not intact.
        lost_rows: rows that are lost.
        must_rewrite: whether the file must be rewritten.
    """

    problems: list[str] = field(default_factory=list)
    lost_episodes: set[int] = field(default_factory=set)
    lost_rows: int = 0
    must_rewrite: bool = False

    def add(self, problem: str) -> None:
        """Adds a problem that needs the file to be rewritten."""
        self.problems.append(problem)
        self.must_rewrite = True


def examine(copy: Path, original: Path) -> Damage:
    """Examines a copy, and changes it so that it opens as a recording with readable rows.

    Raises:
        RecordingError: the file is no recording, or its rows cannot be found.
    """
    damage, size = Damage(), copy.stat().st_size
    expected_size = _size_in_header(copy, original)
    if size < expected_size:
        if expected_size > MAX_GROWTH * size + SPARE_BYTES:
            raise RecordingError(f"{original}: its HDF5 header is damaged (it claims {expected_size:,} bytes)")
        os.truncate(copy, expected_size)
        damage.add(f"the file is truncated: {size:,} of {expected_size:,} bytes")
    inspect_damaged(copy, original)
    try:
        changed = _changed_chunks(copy, damage)
        with h5py.File(copy, "r+", locking="best-effort") as file:
            _check_format(file, original)
            unreadable = _check_datasets(file, size, changed, original, damage)
            n_rows = _cut_to_shortest(file, unreadable, damage)
            is_bad = np.zeros(n_rows, bool)
            for start, stop in (span for spans in unreadable.values() for span in spans):
                is_bad[start:stop] = True
            is_bad |= _invalid_values(file, n_rows, damage)
            repair_table(file, n_rows, is_bad, damage)
    except MarlnbError:
        raise
    except Exception as error:  # whatever HDF5, h5py and the contents of a damaged file raise
        if errno_of(error) in PROBLEMS:
            raise
        what = f"{type(error).__name__}: {error}"
        raise RecordingError(f"{original} cannot be repaired: {what}; it is unchanged") from error
    return damage


def _changed_chunks(copy: Path, damage: Damage) -> set[int]:
    """The first bytes of the chunks that are not what was written; changes of the structure are a problem.

    Recordings of older versions, and those that were never closed, have no checksums: then it is empty.
    """
    try:
        checksums = Checksums.read(copy)
    except RecordingError:
        damage.add("its table of checksums was damaged")
        return set()
    ranges = [] if checksums is None else checksums.damaged_ranges()
    n_bytes = sum(stop - start for start, stop, is_structure in ranges if is_structure)
    if n_bytes:
        damage.add(f"its structure was changed, in a part of {n_bytes:,} bytes")
    return {start for start, _, is_structure in ranges if not is_structure}


def _size_in_header(copy: Path, original: Path) -> int:
    """The file's size according to its HDF5 header."""
    with open(copy, "rb") as file:
        head = file.read(64)
    if not head.startswith(SIGNATURE) or len(head) < 64:
        raise RecordingError(f"{original} does not start as an HDF5 file does; nothing of it can be restored")
    version = head[8]
    if version > 3:
        raise RecordingError(f"{original}: its HDF5 header is damaged (version {version})")
    return int(struct.unpack_from("<Q", head, 40 if version < 2 else 28)[0])


def _check_format(file: h5py.File, original: Path) -> None:
    if file.attrs.get("format") != FORMAT:
        raise RecordingError(f"{original} is not a recording of marlnb: its format is {file.attrs.get('format')!r}")
    if "segments" in file.attrs:
        names = ", ".join(map(str, file.attrs["segments"][:3]))
        raise RecordingError(f"{original} is joined from segments; repair those: {names}, ...")
    for name in ("id", "name", "group", "policy_index"):
        if name in file["agents"]:
            file[f"agents/{name}"][:]  # raises where it is unreadable


def _check_datasets(
    file: h5py.File, size: int, changed: set[int], original: Path, damage: Damage
) -> dict[str, list[tuple[int, int]]]:
    """By dataset, the spans of rows that cannot be read. Datasets that cannot be opened are moved away."""
    unreadable: dict[str, list[tuple[int, int]]] = {}
    for path in _row_links(file):
        try:
            unreadable[path] = _unreadable_spans(file[path], size, changed)
        except Exception as error:
            if path in ESSENTIAL_PATHS:
                raise RecordingError(
                    f"{original}: {path} is unreadable, so rows cannot be assigned to episodes"
                ) from error
            file.require_group(DAMAGED_GROUP)
            file.move(path, f"{DAMAGED_GROUP}/{len(file[DAMAGED_GROUP])}")
            damage.add(f"{path} is unreadable and was dropped")
    missing = [path for path in ESSENTIAL_PATHS if path not in unreadable]
    if missing:
        raise RecordingError(f"{original} has no {', '.join(missing)}, so rows cannot be assigned to episodes")
    for path, spans in unreadable.items():
        n_rows = sum(stop - start for start, stop in spans)
        if n_rows:
            damage.add(f"{path}: {n_rows:,} rows are missing, unreadable or changed")
    return unreadable


def _row_links(file: h5py.File) -> list[str]:
    """Paths of all links below the groups of row datasets, also of objects that cannot be opened."""
    return [path for top in ROW_TOPS if top in file for path in _walk(file, top)]


def _walk(file: h5py.File, group: str) -> Iterator[str]:
    for name in list(file[group].keys()):
        path = f"{group}/{name}"
        try:
            is_group = isinstance(file[path], h5py.Group)
        except (OSError, RuntimeError, KeyError):
            is_group = False
        if is_group:
            yield from _walk(file, path)
        else:
            yield path


def _unreadable_spans(dataset: h5py.Dataset, size: int, changed: set[int]) -> list[tuple[int, int]]:
    """Spans of rows whose chunks are missing, outside the file or changed."""
    n_rows, chunk = len(dataset), dataset.chunks
    if chunk is None:
        dataset[:]  # raises where it is unreadable
        return []
    n_chunks: dict[int, int] = {}

    def visit(info: h5py.h5d.StoreInfo) -> None:
        if info.byte_offset + info.size <= size and info.byte_offset not in changed:
            n_chunks[info.chunk_offset[0]] = n_chunks.get(info.chunk_offset[0], 0) + 1

    dataset.id.chunk_iter(visit)
    expected = int(np.prod([-(-length // cell) for length, cell in zip(dataset.shape[1:], chunk[1:])], dtype=np.int64))
    starts = range(0, n_rows, chunk[0])
    return [(start, min(n_rows, start + chunk[0])) for start in starts if n_chunks.get(start, 0) < expected]


def _cut_to_shortest(file: h5py.File, unreadable: dict[str, list[tuple[int, int]]], damage: Damage) -> int:
    """Cuts all datasets, and the spans in `unreadable`, to the shortest dataset; returns its rows."""
    lengths = {path: len(file[path]) for path in unreadable}
    n_rows, max_rows = min(lengths.values()), max(lengths.values())
    if n_rows < max_rows:
        short = sorted(path for path, length in lengths.items() if length < max_rows)
        listed = f"{', '.join(short[:MAX_LISTED_PATHS])}{' and others' if len(short) > MAX_LISTED_PATHS else ''}"
        damage.add(f"datasets differ in length: {listed} end at {n_rows:,} rows, others at {max_rows:,}")
        damage.lost_rows += max_rows - n_rows
        file.attrs["complete"] = False
    for path, spans in unreadable.items():
        file[path].resize(n_rows, axis=0)
        unreadable[path] = [(start, min(stop, n_rows)) for start, stop in spans if start < n_rows]
    return n_rows


def _invalid_values(file: h5py.File, n_rows: int, damage: Damage) -> np.ndarray:
    """`[row]`: where flags are neither 0 nor 1, or a few rows hold numbers that no network outputs."""
    is_bad = np.zeros(n_rows, bool)
    for path in _row_links(file):
        dataset = file[path]
        kind = dataset.dtype.kind
        is_measured = path.startswith(("activations/", "recurrent/")) or path.endswith(("/observation", "/reward"))
        if kind != "b" and not (kind == "f" and is_measured):
            continue
        is_invalid = np.zeros(n_rows, bool)
        row_bytes = dataset.dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64))
        step = max(1, BATCH_BYTES // max(1, row_bytes))
        for start in range(0, n_rows, step):
            values = dataset[start : start + step].reshape(min(step, n_rows - start), -1)
            odd = values.view(np.uint8) > 1 if kind == "b" else ~(np.abs(values.astype(np.float32)) < MAX_VALUE)
            is_invalid[start : start + step] = odd.any(axis=1)
        if is_invalid.any() and (kind == "b" or is_invalid.mean() < 0.5):
            damage.add(f"{path}: {int(is_invalid.sum()):,} rows hold invalid values")
            is_bad |= is_invalid
        elif is_invalid.any():  # most rows: a network that diverged, not damage
            damage.problems.append(f"{path}: {is_invalid.mean():.0%} of the rows are not finite; they are kept")
    return is_bad
