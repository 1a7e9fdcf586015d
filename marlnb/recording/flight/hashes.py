"""A hash of what each env did in each iteration of a training run, so that a repetition can prove that it is the same.

    h(env) = sum_j mix((x_j + c j) a) mod 2**64,  of which the lower 32 bits are kept

x are the bits of actions, ends and rewards in a fixed order, j their positions. Sums of integers do not depend on the
order of their terms, so a CPU and a GPU get the same hash of the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.disk import replacing, writing
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.specs import EnvSpec
from marlnb.text_files import read_bytes

_ODD_1, _ODD_2 = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64  # those of splitmix64
_WORD = 0xFFFFFFFF


@torch.no_grad()
def rollout_hashes(rollout: Rollout, spec: EnvSpec) -> Tensor:
    """`[env]` int64 in `[0, 2**32)`: a hash of every env's actions, ends and rewards. It does not wait for a GPU."""
    device = rollout["next", "done"].device
    total = torch.zeros(rollout.batch_size[0], dtype=torch.int64, device=device)
    first = 0
    for value in _values(rollout, spec):
        words = _words(value.flatten(1))
        positions = torch.arange(first, first + words.shape[1], device=device)
        mixed = (words + positions * _ODD_1) * _ODD_2
        mixed = (mixed ^ (mixed >> 29)) * _ODD_1
        total += (mixed ^ (mixed >> 32)).sum(1)
        first += words.shape[1]
    return total & _WORD


def _values(rollout: Rollout, spec: EnvSpec) -> Iterator[Tensor]:
    yield rollout["next", "done"]
    for name in spec.group_names:
        yield rollout[name, "action"]
        for item in ("reward", "terminated", "truncated"):
            yield rollout["next", name, item]


def _words(value: Tensor) -> Tensor:
    """The bits of each number, as int64."""
    if value.is_floating_point():
        value = value.contiguous().view(torch.int64 if value.dtype == torch.float64 else torch.int32)
    return value.long()


class HashFile:
    """A file to which each iteration appends its number (int64) and the hash of every env (uint32)."""

    def __init__(self, path: Path, n_envs: int) -> None:
        self.path = path
        self._row = np.dtype([("iteration", "<i8"), ("hash", "<u4", (n_envs,))])

    def append(self, iteration: int, hashes: np.ndarray) -> None:
        with writing(self.path, kind=RecordingWriteError), open(self.path, "ab") as file:
            file.write(self._bytes(iteration, hashes))

    def read(self) -> dict[int, np.ndarray]:
        """By iteration `[env]` int64; empty where there is no file. A row that a kill cut off does not count."""
        if not self.path.exists():
            return {}
        try:
            data = read_bytes(self.path, follow=False)
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror or error}") from error
        rows = np.frombuffer(data[: len(data) // self._row.itemsize * self._row.itemsize], self._row)
        return {int(row["iteration"]): row["hash"].astype(np.int64) for row in rows}

    def cut(self, iteration: int) -> None:
        """Removes the iterations after this one: they are trained again."""
        kept = [self._bytes(number, hashes) for number, hashes in self.read().items() if number <= iteration]
        with writing(self.path, kind=RecordingWriteError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as part:
                part.write_bytes(b"".join(kept))

    def _bytes(self, iteration: int, hashes: np.ndarray) -> bytes:
        row = np.zeros(1, self._row)
        row["iteration"], row["hash"] = iteration, hashes
        return row.tobytes()
