"""What is wrong with a recording's file, and a copy of it put so far in order that it opens."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.file.layout import FORMAT, ROW_TOPS
from marlnb.recording.tools.episode_table import mend_table

SIGNATURE = b"\x89HDF\r\n\x1a\n"
ESSENTIAL = ("steps/t", "steps/episode")
DAMAGED = "damaged"
ABSURD = 1e30  # no network's unit, but one of nine random float32 numbers, is as large
BATCH_BYTES = 32 * 1024 * 1024


@dataclass
class Findings:
    """Attributes: found: in words; lost_episodes: their numbers; lost_rows: that were there; must_copy: something is
    to be changed."""

    found: list[str] = field(default_factory=list)
    lost_episodes: set[int] = field(default_factory=set)
    lost_rows: int = 0
    must_copy: bool = False

    def tell(self, what: str) -> None:
        self.found.append(what)
        self.must_copy = True


def examine(copy: Path, original: Path) -> Findings:
    """Looks through a copy and changes it so that it opens as a recording of which every row can be read.

    Raises:
        RecordingError: it is no recording, or nothing tells its rows.
    """
    findings, size = Findings(), copy.stat().st_size
    end = _end_of_file(copy, original)
    if size < end:
        os.truncate(copy, end)
        findings.tell(f"the file is cut short: {size:,} of {end:,} bytes")
    try:
        with h5py.File(copy, "r+", locking="best-effort") as file:
            _check_format(file, original)
            lost = _check_datasets(file, size, original, findings)
            rows = _even_out(file, lost, findings)
            bad = np.zeros(rows, bool)
            for start, stop in (span for spans in lost.values() for span in spans):
                bad[start:stop] = True
            bad |= _not_numbers(file, rows, findings)
            mend_table(file, rows, bad, findings)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise RecordingError(f"{original} is damaged beyond repair: {error}; it is left as it is") from error
    return findings


def _end_of_file(copy: Path, original: Path) -> int:
    """The length that the file's own header tells."""
    with open(copy, "rb") as file:
        head = file.read(64)
    if not head.startswith(SIGNATURE) or len(head) < 64:
        raise RecordingError(f"{original} does not begin as an HDF5 file does; nothing can be saved of it")
    version = head[8]
    if version > 3:
        raise RecordingError(f"{original}: its HDF5 header is damaged (version {version})")
    return int(struct.unpack_from("<Q", head, 40 if version < 2 else 28)[0])


def _check_format(file: h5py.File, original: Path) -> None:
    if file.attrs.get("format") != FORMAT:
        raise RecordingError(f"{original} is no recording of marlnb: its format is {file.attrs.get('format')!r}")
    if "segments" in file.attrs:
        names = ", ".join(map(str, file.attrs["segments"][:3]))
        raise RecordingError(f"{original} is joined from segments; repair those: {names}, ...")
    for name in ("id", "name", "group", "policy_index"):
        if name in file["agents"]:
            file[f"agents/{name}"][:]


def _check_datasets(file: h5py.File, size: int, original: Path, findings: Findings) -> dict[str, list[tuple[int, int]]]:
    """Stretches of rows that cannot be read, by dataset; what cannot be opened at all is put out of the way."""
    found: dict[str, list[tuple[int, int]]] = {}
    for path in [path for top in ROW_TOPS if top in file for path in _walk(file, top)]:
        try:
            found[path] = _unreadable(file[path], size)
        except (OSError, RuntimeError, KeyError) as error:
            if path in ESSENTIAL:
                raise RecordingError(f"{original}: {path} cannot be read, so nothing tells its rows") from error
            file.require_group(DAMAGED)
            file.move(path, f"{DAMAGED}/{len(file[DAMAGED])}")
            findings.tell(f"{path} cannot be read and is left out")
    missing = [path for path in ESSENTIAL if path not in found]
    if missing:
        raise RecordingError(f"{original} has no {', '.join(missing)}, so nothing tells its rows")
    for path, spans in found.items():
        n_rows = sum(stop - start for start, stop in spans)
        if n_rows:
            findings.tell(f"{path}: {n_rows:,} rows are not in the file or not readable")
    return found


def _walk(file: h5py.File, group: str) -> Iterator[str]:
    """Paths of links below a group, also of objects that cannot be opened."""
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


def _unreadable(dataset: h5py.Dataset, size: int) -> list[tuple[int, int]]:
    """Rows of chunks that lie outside the file or are not there."""
    rows, chunk = len(dataset), dataset.chunks
    if chunk is None:
        dataset[:]
        return []
    seen: dict[int, int] = {}

    def visit(info: h5py.h5d.StoreInfo) -> None:
        if info.byte_offset + info.size <= size:
            seen[info.chunk_offset[0]] = seen.get(info.chunk_offset[0], 0) + 1

    dataset.id.chunk_iter(visit)
    expected = int(np.prod([-(-length // cell) for length, cell in zip(dataset.shape[1:], chunk[1:])], dtype=np.int64))
    starts = range(0, rows, chunk[0])
    return [(start, min(rows, start + chunk[0])) for start in starts if seen.get(start, 0) < expected]


def _even_out(file: h5py.File, lost: dict[str, list[tuple[int, int]]], findings: Findings) -> int:
    """Cuts all datasets to the rows that every one has, and cuts `lost` as well."""
    lengths = {path: len(file[path]) for path in lost}
    rows, most = min(lengths.values()), max(lengths.values())
    if rows < most:
        short = sorted(path for path, length in lengths.items() if length < most)
        told = f"{', '.join(short[:4])}{' and others' if len(short) > 4 else ''}"
        findings.tell(f"datasets differ in length: {told} end at {rows:,} rows, others at {most:,}")
        findings.lost_rows += most - rows
    for path, spans in lost.items():
        file[path].resize(rows, axis=0)
        lost[path] = [(start, min(stop, rows)) for start, stop in spans if start < rows]
    return rows


def _not_numbers(file: h5py.File, rows: int, findings: Findings) -> np.ndarray:
    """`[row]`, where flags are neither 0 nor 1, or a few rows hold what no network puts out."""
    bad = np.zeros(rows, bool)
    for path in [path for top in ROW_TOPS if top in file for path in _walk(file, top)]:
        dataset = file[path]
        kind = dataset.dtype.kind
        measured = path.startswith(("activations/", "recurrent/")) or path.endswith(("/observation", "/reward"))
        if kind != "b" and not (kind == "f" and measured):
            continue
        wrong = np.zeros(rows, bool)
        step = max(1, BATCH_BYTES // max(1, dataset.dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64))))
        for start in range(0, rows, step):
            values = dataset[start : start + step].reshape(min(step, rows - start), -1)
            odd = values.view(np.uint8) > 1 if kind == "b" else ~(np.abs(values.astype(np.float32)) < ABSURD)
            wrong[start : start + step] = odd.any(axis=1)
        if wrong.any() and (kind == "b" or wrong.mean() < 0.5):
            findings.tell(f"{path}: {int(wrong.sum()):,} rows hold what cannot have been recorded")
            bad |= wrong
        elif wrong.any():
            findings.found.append(f"{path}: {wrong.mean():.0%} of the rows are not finite; they are kept as recorded")
    return bad
