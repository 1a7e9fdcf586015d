"""Episodes that have finished but are not written yet, and which ring slots hold their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.envs.vector import Step
from marlnb.recording.capture.ring_buffer import RingBuffer
from marlnb.recording.capture.sources import Selection
from marlnb.training.collect.episodes import TimeStep


class FinishedEpisodes:
    """Finished episodes in the order in which they ended, by env index where several ended together.

    Attributes:
        n_steps: steps of all of them, an upper bound of their rows.
    """

    def __init__(self, selections: Sequence[Selection]) -> None:
        self._selections = selections
        self._batches: list[dict[str, np.ndarray]] = []
        self.n_steps = 0

    def __bool__(self) -> bool:
        """Whether any episode waits. One whose rows were all streamed has no steps here."""
        return bool(self._batches)

    def add(self, envs: np.ndarray, start: np.ndarray, stop: int, time_step: TimeStep, step: Step) -> None:
        """Adds the episodes of `envs` `[episode]`, which ended with this step.

        Args:
            start: `[env]`, the ring position of each env's first row.
            stop: the ring position after the last row.
        """
        returns = [
            time_step.returns[selection.group.name].numpy()[envs][:, list(selection.indices)]
            + step.groups[selection.group.name].reward.cpu().numpy()[envs][:, list(selection.indices)]
            for selection in self._selections
        ]
        self._batches.append(
            {
                "env_index": envs,
                "start": start[envs],
                "stop": np.full(len(envs), stop),
                "episode": time_step.episode.numpy()[envs],
                "seed": time_step.episode_seed.numpy()[envs],
                "n_steps": time_step.t.numpy()[envs] + 1,
                "return": np.concatenate(returns, axis=1),
            }
        )
        self.n_steps += int(len(envs) * stop - start[envs].sum())

    def pop_all(self) -> dict[str, np.ndarray]:
        """Removes all episodes and returns their columns `[episode]`; `return` is `[episode, agent]`."""
        columns = {name: np.concatenate([batch[name] for batch in self._batches]) for name in self._batches[0]}
        self._batches, self.n_steps = [], 0
        return columns


@dataclass(frozen=True)
class EpisodeRows:
    """The rows of some episodes, one episode after the other.

    Attributes:
        positions: `[row]`, in the ring.
        t: `[row]`, steps since the episode began.
        envs: `[row]`, env indices.
        episodes: `[row]`, episode numbers.
        lengths: `[episode]`, rows of each episode.
    """

    positions: np.ndarray
    t: np.ndarray
    envs: np.ndarray
    episodes: np.ndarray
    lengths: np.ndarray

    @classmethod
    def from_spans(
        cls, envs: np.ndarray, episodes: np.ndarray, start: np.ndarray, stop: np.ndarray, *, first_t: int
    ) -> EpisodeRows:
        """All positions from `start` to `stop` of each episode `[episode]`; the step at `start` is `first_t`."""
        lengths = stop - start
        offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return cls(
            positions=offset + np.repeat(start, lengths),
            t=offset + first_t,
            envs=np.repeat(envs, lengths),
            episodes=np.repeat(episodes, lengths),
            lengths=lengths,
        )

    def every(self, n: int, t: np.ndarray) -> EpisodeRows:
        """The rows whose step `t` `[row]` is a multiple of `n`."""
        is_kept = t % n == 0
        episode_index = np.repeat(np.arange(len(self.lengths)), self.lengths)
        lengths = np.bincount(episode_index[is_kept], minlength=len(self.lengths))
        return EpisodeRows(self.positions[is_kept], t[is_kept], self.envs[is_kept], self.episodes[is_kept], lengths)

    def flat_rows(self, ring: RingBuffer) -> np.ndarray:
        """`[row]`: where `ring` holds each row, slot * n_envs + env_index."""
        return self.positions % ring.capacity * ring.n_envs + self.envs

    def bounds(self) -> Iterator[tuple[int, int]]:
        """The first row and the one after the last, of each episode that has rows."""
        stops = np.cumsum(self.lengths)
        return ((a, b) for a, b in zip((stops - self.lengths).tolist(), stops.tolist()) if b > a)
