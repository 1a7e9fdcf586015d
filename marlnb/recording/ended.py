"""Episodes that have ended and wait to be appended, and where their rows lie in the ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.envs.vector import Step
from marlnb.recording.inflight import InFlight
from marlnb.recording.sources import Selection
from marlnb.training.episodes import Moment

COLUMNS = ("copy", "episode", "seed", "begun", "stop", "n_steps", "return")


class Ended:
    """Ended episodes, in the order in which they ended; of those that ended together, by copy.

    Attributes:
        steps: rows that they take at most.
    """

    def __init__(self, selections: Sequence[Selection]) -> None:
        self._groups = [
            (each.group.name, slice(None) if each.pick is None else list(each.indices)) for each in selections
        ]
        self._entries: list[tuple[np.ndarray, ...]] = []
        self.steps = 0

    def add(
        self,
        copies: np.ndarray,
        numbers: np.ndarray,
        seeds: np.ndarray,
        begun: np.ndarray,
        stop: int,
        moment: Moment,
        step: Step,
    ) -> None:
        """Episodes `[episode]` that ended with this step; their rows lie at the positions from `begun` to `stop`."""
        returns = [
            (moment.returns[name].numpy()[copies] + step.groups[name].reward.cpu().numpy()[copies])[:, pick]
            for name, pick in self._groups
        ]
        n_steps = moment.t.numpy()[copies] + 1
        total = returns[0] if len(returns) == 1 else np.concatenate(returns, axis=1)
        self._entries.append((copies, numbers, seeds, begun, np.full(len(copies), stop), n_steps, total))
        self.steps += int(len(copies) * stop - begun.sum())

    def taken(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """Columns episode, seed, stop and n_steps, the returns `[episode, agent]`, begun and copies; none wait then."""
        columns = {name: np.concatenate(values) for name, values in zip(COLUMNS, zip(*self._entries))}
        self._entries, self.steps = [], 0
        return columns, columns.pop("return"), columns.pop("begun"), columns.pop("copy")


@dataclass(frozen=True)
class Lying:
    """Rows of episodes, one after the other.

    Attributes:
        positions, copies, numbers: `[row]`, in the ring, and of the episodes; lengths: `[episode]`, rows of each.
    """

    positions: np.ndarray
    copies: np.ndarray
    numbers: np.ndarray
    lengths: np.ndarray

    @classmethod
    def between(cls, copies: np.ndarray, numbers: np.ndarray, begun: np.ndarray, stop: np.ndarray) -> Lying:
        """All positions from `begun` to `stop` of each episode."""
        lengths = stop - begun
        firsts = np.cumsum(lengths) - lengths
        positions = np.arange(int(lengths.sum())) + np.repeat(begun - firsts, lengths)
        return cls(positions, np.repeat(copies, lengths), np.repeat(numbers, lengths), lengths)

    def only(self, kept: np.ndarray) -> Lying:
        """The rows that are `kept` `[row]`."""
        episode = np.repeat(np.arange(len(self.lengths)), self.lengths)
        lengths = np.bincount(episode[kept], minlength=len(self.lengths))
        return Lying(self.positions[kept], self.copies[kept], self.numbers[kept], lengths)

    def flat(self, ring: InFlight) -> np.ndarray:
        """`[row]`, where they lie in `ring`: slot × copies + copy."""
        return self.positions % ring.capacity * ring.n_envs + self.copies

    def bounds(self) -> Iterator[tuple[int, int]]:
        """First row of each episode that has any, and one past its last."""
        stops = np.cumsum(self.lengths)
        return ((a, b) for a, b in zip((stops - self.lengths).tolist(), stops.tolist()) if b > a)
