"""Reading a recording: one unit over all rows, scattered rows, a stream of batches; each compared with plain h5py.

A synthetic site of two agents and 256 units, float32, in a recording's file format.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from benchmarks.table import Row, report
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RecordingWriter

PATH = "activations/agent/actor/hidden_1"
AGENTS, UNITS = 2, 256
BATCH = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    rows = arguments.megabytes * 2**20 // (AGENTS * UNITS * 4) // BATCH * BATCH
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.h5"
        write(path, rows)
        with h5py.File(path) as file:
            compare(file, rows, arguments.repetitions)


def write(path: Path, rows: int) -> None:
    field = Field(PATH, ("agent", "unit"), (AGENTS, UNITS), "float32", "agent")
    writer = RecordingWriter(path, [field], {}, {"id": [0, 1], "name": ["a", "b"]}, expected_rows=rows)
    generator = np.random.default_rng(0)
    for _ in range(rows // BATCH):
        writer.append([generator.standard_normal((1, BATCH, AGENTS, UNITS), np.float32)])
    writer.close(complete=True)


def compare(file: h5py.File, rows: int, repetitions: int) -> None:
    array = LabelledArray(
        path=PATH,
        open_dataset=lambda: file[PATH],
        find_rows=lambda among, selectors: among,
        axes=(("agent", AGENTS), ("unit", UNITS)),
        labels={},
        rows=np.arange(rows),
        dtype_stored="float32",
        picks=(slice(None), slice(None)),
    )
    scattered = np.random.default_rng(1).permutation(rows)[:BATCH]
    ascending = np.sort(scattered)
    shuffled = replace(array, rows=scattered)
    cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "one unit, all rows": (lambda: array.sel(agent=1, unit=37).to_numpy(), lambda: file[PATH][:, 1, 37]),
        f"{BATCH:,} scattered rows": (shuffled.to_numpy, lambda: file[PATH][ascending]),
        "all rows in batches": (lambda: sum(len(batch) for batch in array.batches(BATCH)), lambda: stream(file, rows)),
    }
    for name, (ours, theirs) in cases.items():
        times = [(milliseconds(theirs), milliseconds(ours)) for _ in range(repetitions)]
        table = [
            Row("h5py", tuple(values[0] for values in times), "ms"),
            Row("marlnb", tuple(values[1] for values in times), "ms", against="h5py", target=1.1, at_most=True),
        ]
        report(f"reading-{name.replace(' ', '-').replace(',', '')}", f"{name}, {rows:,} rows", table)


def stream(file: h5py.File, rows: int) -> int:
    return sum(len(file[PATH][start : start + BATCH]) for start in range(0, rows, BATCH))


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
