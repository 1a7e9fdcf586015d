"""Episodes that have ended and wait to be appended, and where their rows lie in the ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from marlnb.envs.vector import Step
from marlnb.recording.capture.ring_buffer import InFlight
from marlnb.recording.capture.sources import Selection
from marlnb.training.collect.episodes import TimeStep


class Ended:
    """Ended episodes, in the order in which they ended; of those that ended together, by copy.

    Attributes:
        steps: rows that they take at most.
    """

    def __init__(self, selections: Sequence[Selection]) -> None:
        self._groups = [
            (each.group.name, slice(None) if each.pick is None else list(each.indices)) for each in selections
        ]
        self._entries: list[_Entry] = []
        self.steps = 0

    def add(self, copies: np.ndarray, begun: np.ndarray, stop: int, time_step: TimeStep, step: Step) -> None:
        """The episodes of `copies` `[episode]` ended with this step; their rows lie from `begun` `[env]` to `stop`."""
        sums = [time_step.returns[name].numpy() + step.groups[name].reward.cpu().numpy() for name, _ in self._groups]
        whose = time_step.episode, time_step.episode_seed, time_step.t  # nobody writes to these again
        self._entries.append(_Entry(copies, begun.copy(), stop, *whose, sums))
        self.steps += int(len(copies) * stop - begun[copies].sum())

    def taken(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """Columns episode, seed, stop and n_steps, the returns `[episode, agent]`, begun and copies; none wait then."""
        each = [entry.columns(self._groups) for entry in self._entries]
        columns = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
        self._entries, self.steps = [], 0
        return columns, columns.pop("return"), columns.pop("begun"), columns.pop("copy")


@dataclass(slots=True)
class _Entry:
    """What `Ended.add` was told, whole: picking the episodes out can wait."""

    copies: np.ndarray
    begun: np.ndarray
    stop: int
    episode: Tensor
    seed: Tensor
    t: Tensor
    sums: list[np.ndarray]

    def columns(self, groups: Sequence[tuple[str, slice | list[int]]]) -> dict[str, np.ndarray]:
        """`[episode]`; return: `[episode, agent]`."""
        at = self.copies
        return {
            "copy": at,
            "episode": self.episode.numpy()[at],
            "seed": self.seed.numpy()[at],
            "begun": self.begun[at],
            "stop": np.full(len(at), self.stop),
            "n_steps": self.t.numpy()[at] + 1,
            "return": np.concatenate([sums[at][:, pick] for sums, (_, pick) in zip(self.sums, groups)], axis=1),
        }


@dataclass(frozen=True)
class Lying:
    """Rows of episodes, one after the other.

    Attributes:
        positions, t, copies, numbers: `[row]`, in the ring, of the steps, copies and episodes.
        lengths: `[episode]`, rows of each.
    """

    positions: np.ndarray
    t: np.ndarray
    copies: np.ndarray
    numbers: np.ndarray
    lengths: np.ndarray

    @classmethod
    def between(
        cls, copies: np.ndarray, numbers: np.ndarray, begun: np.ndarray, stop: np.ndarray, *, first: int
    ) -> Lying:
        """All positions from `begun` to `stop` of each episode; at the first of them it is at step `first`."""
        lengths = stop - begun
        number = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = number + np.repeat(begun, lengths)
        return cls(positions, number + first, np.repeat(copies, lengths), np.repeat(numbers, lengths), lengths)

    def every(self, n: int, t: np.ndarray) -> Lying:
        """The rows of each n-th step; t: `[row]`, their steps."""
        kept = t % n == 0
        episode = np.repeat(np.arange(len(self.lengths)), self.lengths)
        lengths = np.bincount(episode[kept], minlength=len(self.lengths))
        return Lying(self.positions[kept], t[kept], self.copies[kept], self.numbers[kept], lengths)

    def flat(self, ring: InFlight) -> np.ndarray:
        """`[row]`, where they lie in `ring`: slot × copies + copy."""
        return self.positions % ring.capacity * ring.n_envs + self.copies

    def bounds(self) -> Iterator[tuple[int, int]]:
        """First row of each episode that has any, and one past its last."""
        stops = np.cumsum(self.lengths)
        return ((a, b) for a, b in zip((stops - self.lengths).tolist(), stops.tolist()) if b > a)
