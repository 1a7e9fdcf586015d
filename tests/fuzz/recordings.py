"""Damages recordings at random and opens, reads and repairs each in a process of its own.

    python -m tests.fuzz.recordings --n 300 --seed 0
    python -m tests.fuzz.recordings --n 300 --no-checksums --keep /tmp/found

An outcome is one of: same (every value is the one that was written), refused (an error of marlnb), changed (other
values without an error), traceback (any other error), crash, hang (more than 10 s). Only the first two are right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.errors import MarlnbError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.repair import repair
from tests.recording.runs import LivesConfig, make_run

LIMIT_S = 10.0
RIGHT = ("same", "refused")
NUMBERS = [0, 1, 0xFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 2**40]
Values = dict[str, str]


def make_recording(folder: Path, *, checksums: bool = True) -> Path:
    """A small recording with every kind of dataset, closed and complete."""
    run = make_run(folder / "run", LivesConfig(), centralised=False)
    with record(run, episodes=20, n_envs=4, frames=True, progress=False) as recording:
        path = recording.path
    if not checksums:
        with h5py.File(path, "r+") as file:  # HDF5 cuts off what follows its end
            file.attrs["seed"] = file.attrs["seed"]
    return path


def read_all(path: Path) -> Values:
    """A digest of everything that a recording holds, by name."""
    values: Values = {}
    with Recording.open(path) as recording:
        repr(recording), recording._repr_html_()
        values["texts"] = _digest(repr((recording.spec, recording.settings, recording.experiment, recording.source)))
        values["state"] = _digest(repr((recording.complete, recording.checkpoint)))
        values["episodes"] = _digest(recording.episodes.to_csv())
        values["rows"] = _digest(recording.rows.to_csv())
        values["checkpoints"] = _digest(recording.checkpoints.to_csv())
        for name in row_paths(recording.file):
            array = recording._array(name)
            values[name] = _digest(repr((array.dims, array.labels, array.dtype_stored)), array.to_numpy())
        for episode in recording.episodes.index[:3]:
            values[f"frame {episode}"] = _digest("", recording.frame(episode=int(episode), t=0))
    return values


def damage(content: bytes, structure: np.ndarray, generator: np.random.Generator) -> tuple[str, bytes]:
    """What was done, and the damaged bytes.

    Args:
        structure: offsets of bytes that are no rows; three of four changes are made there.
    """

    def offset() -> int:
        anywhere = generator.random() < 0.25
        return int(generator.integers(len(content))) if anywhere else int(generator.choice(structure))

    data = bytearray(content)
    start = offset()
    size = int(generator.integers(1, 65))
    kind = str(generator.choice(["flip", "flips", "number", "zeros", "truncate", "insert", "delete", "copy"]))
    if kind == "flip":
        data[start] ^= 1 << int(generator.integers(8))
    elif kind == "flips":
        for position in [start, *(offset() for _ in range(int(generator.integers(1, 8))))]:
            data[position] = int(generator.integers(256))
    elif kind == "number":
        width = int(generator.choice([2, 4, 8]))
        number = int(generator.choice(np.array(NUMBERS, dtype=object))) % 2 ** (8 * width)
        data[start : start + width] = number.to_bytes(width, "little")
    elif kind == "zeros":
        data[start : start + size] = bytes(len(data[start : start + size]))
    elif kind == "truncate":
        del data[start:]
    elif kind == "insert":
        data[start:start] = generator.bytes(size)
    elif kind == "delete":
        del data[start : start + size]
    else:
        source = offset()
        part = data[source : source + size][: len(data) - start]
        data[start : start + len(part)] = part
    return f"{kind} at {start:,}", bytes(data)


def structure_of(path: Path) -> np.ndarray:
    """Offsets of the bytes that are no rows."""
    is_structure = np.ones(path.stat().st_size, bool)
    with h5py.File(path, "r") as file:
        for name in row_paths(file):
            file[name].id.chunk_iter(
                lambda info: is_structure.__setitem__(slice(info.byte_offset, info.byte_offset + info.size), False)
            )
    return np.flatnonzero(is_structure)


def read_outcome(path: Path, expected: Values) -> tuple[str, str]:
    """(outcome, what happened) of opening and reading a recording in this process."""
    try:
        values = read_all(path)
    except MarlnbError as error:
        return "refused", str(error)
    except Exception as error:
        return "traceback", _where(error)
    different = sorted(name for name in expected if values.get(name) != expected[name])
    return ("changed", ", ".join(different)) if different else ("same", "")


def repair_outcome(path: Path, expected: Values) -> tuple[str, str]:
    """(outcome, what happened) of repairing a recording in this process and reading what is left."""
    try:
        repair(path)
        read_all(path)
    except MarlnbError as error:
        return "refused", str(error)
    except Exception as error:
        return "traceback", _where(error)
    return "same", ""


def in_a_process(outcome: Callable[[Path, Values], tuple[str, str]], path: Path, expected: Values) -> tuple[str, str]:
    """The outcome in a fork of this process, whose end is awaited for `LIMIT_S`."""
    answer = path.with_suffix(".json")
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        answer.write_text(json.dumps(outcome(path, expected)))
        os._exit(0)
    deadline = time.monotonic() + LIMIT_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang", f"more than {LIMIT_S:g} s"
        time.sleep(0.005)
    if os.WIFSIGNALED(status) or not answer.exists():
        return "crash", f"signal {os.WTERMSIG(status)}"
    kind, text = json.loads(answer.read_text())
    answer.unlink()
    return str(kind), str(text)


def _digest(text: str, values: np.ndarray | None = None) -> str:
    digest = hashlib.sha256(text.encode())
    if values is not None:
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _where(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "marlnb" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} in {place}: {str(error)[:100]}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.recordings")
    parser.add_argument("--n", type=int, default=300, help="damaged recordings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-checksums", action="store_true", help="recordings as older versions wrote them")
    parser.add_argument("--keep", type=Path, help="a folder for the files with a wrong outcome")
    options = parser.parse_args(arguments)
    counts: dict[str, Counter[str]] = {"read": Counter(), "repair": Counter()}
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        base = make_recording(Path(folder), checksums=not options.no_checksums)
        expected, content, structure = read_all(base), base.read_bytes(), structure_of(base)
        path = Path(folder) / "damaged.h5"
        for number in range(options.n):
            what, data = damage(content, structure, np.random.default_rng([options.seed, number]))
            outcomes: tuple[tuple[str, Callable[..., Any]], ...] = (("read", read_outcome), ("repair", repair_outcome))
            for action, outcome in outcomes:
                path.write_bytes(data)
                kind, text = in_a_process(outcome, path, expected)
                counts[action][kind] += 1
                if kind in RIGHT:
                    continue
                kinds[f"{action}: {kind}: {text}"] += 1
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, options.keep / f"{action}-{kind}-{options.seed}-{number}.h5")
                    print(f"{action} {number}, {what}: {kind}: {text}", flush=True)
    for action, counter in counts.items():
        print(f"{action}: {options.n} recordings: {', '.join(f'{n} {kind}' for kind, n in counter.most_common())}")
    for text, n in kinds.most_common(20):
        print(f"  {n} × {text}")
    return int(any(kind not in RIGHT for counter in counts.values() for kind in counter))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
