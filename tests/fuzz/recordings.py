"""Damages recordings at random: each is read as it was written, or refused; and so is what `repair` makes of it.

An input is a line that says what is done, read or repair, and the bytes of a damaged recording. Other values without
an error are the outcome "changed".
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import h5py
import numpy as np

from marlnb.recording.capture.recorder import record
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.repair import repair
from tests.fuzz.processes import Outcome
from tests.recording.runs import LivesConfig, make_run

NUMBERS = [0, 1, 0xFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 2**40]
Values = dict[str, str]


class Recordings:
    """A target of damaged copies of one recording."""

    def __init__(self, folder: Path) -> None:
        base = make_recording(folder)
        self.path = folder / "damaged.h5"
        self.expected, self.content, self.structure = read_all(base), base.read_bytes(), structure_of(base)

    def draw(self, generator: np.random.Generator) -> bytes:
        action = b"read" if generator.random() < 0.7 else b"repair"
        return action + b"\n" + damage(self.content, self.structure, generator)

    def outcome(self, data: bytes) -> Outcome:
        action, _, content = data.partition(b"\n")
        self.path.write_bytes(content)
        if action == b"repair":
            repair(self.path)
            read_all(self.path)
            return "accepted", ""
        values = read_all(self.path)
        different = sorted(name for name in self.expected if values.get(name) != self.expected[name])
        return ("changed", ", ".join(different)) if different else ("same", "")


def make_recording(folder: Path) -> Path:
    """A small recording with every kind of dataset, closed and complete."""
    run = make_run(folder / "run", LivesConfig(), centralised=False)
    with record(run, episodes=20, n_envs=4, frames=True, progress=False) as recording:
        return recording.path


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


def damage(content: bytes, structure: np.ndarray, generator: np.random.Generator) -> bytes:
    """The damaged bytes.

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
    return bytes(data)


def structure_of(path: Path) -> np.ndarray:
    """Offsets of the bytes that are no rows."""
    is_structure = np.ones(path.stat().st_size, bool)
    with h5py.File(path, "r") as file:
        for name in row_paths(file):
            file[name].id.chunk_iter(
                lambda info: is_structure.__setitem__(slice(info.byte_offset, info.byte_offset + info.size), False)
            )
    return np.flatnonzero(is_structure)


def _digest(text: str, values: np.ndarray | None = None) -> str:
    digest = hashlib.sha256(text.encode())
    if values is not None:
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
