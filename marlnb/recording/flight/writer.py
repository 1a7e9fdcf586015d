"""RolloutWriter: cuts rollouts into episodes and appends each episode's rows together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from marlnb.recording.file.layout import Field, stored_bytes
from marlnb.recording.file.writer import RecordingWriter
from marlnb.specs import SEED_SPAN
from marlnb.training.runs.run import Origin

NUMBERS = (
    Field("steps/t", (), (), "int64"),
    Field("steps/env_id", (), (), "int64"),
    Field("steps/episode", (), (), "int64"),
)


@dataclass
class _Unfinished:
    """An episode whose end has not been collected yet.

    Attributes:
        first_t: the step of its first row: above 0 where it began before the recording.
        seed: of the episode.
        parts: rows of each rollout, and the weights that played them.
    """

    first_t: int
    seed: int
    parts: list[tuple[Origin, list[np.ndarray]]] = field(default_factory=list)


class RolloutWriter:
    """Takes rollouts in their order.

    Args:
        writer: the file; its fields are `fields` and then `NUMBERS`.
        fields: of the rows.
        envs: `[env]`, numbers of the recorded envs.
        n_envs: of the training.
        steps: `[env]`, steps that the episodes had taken before the first rollout.
    """

    def __init__(
        self, writer: RecordingWriter, fields: Sequence[Field], envs: np.ndarray, n_envs: int, steps: np.ndarray
    ) -> None:
        self.writer, self.fields, self.envs, self._n_envs, self._steps = writer, fields, envs, n_envs, steps
        self._rewards = [index for index, item in enumerate(fields) if item.path.endswith("/reward")]
        self._unfinished: dict[int, _Unfinished] = {}
        self._n_episodes = 0

    def add(
        self, rows: Mapping[str, Tensor], is_init: np.ndarray, done: np.ndarray, seeds: np.ndarray, origin: Origin
    ) -> None:
        """Adds a rollout.

        Args:
            rows: by path, `[env, time, ...]`, on the CPU.
            is_init: `[env]` bool, whether an episode starts with the first row.
            done: `[env, time]` bool, where an episode ends.
            seeds: `[env]`, of the episodes at the rollout's end.
            origin: the weights that played it.
        """
        for index in range(len(self.envs)):
            if is_init[index]:
                self._finish(index, finished=False)  # of an environment that was reset at a checkpoint
            ends = [int(t) + 1 for t in np.flatnonzero(done[index])]
            starts = [0, *ends]
            for number, (start, stop) in enumerate(zip(starts, [*ends, done.shape[1]])):
                if start == stop:
                    continue
                if index not in self._unfinished:
                    seed = (int(seeds[index]) - (len(ends) - number) * self._n_envs) % SEED_SPAN
                    at_start = start > 0 or is_init[index]
                    self._unfinished[index] = _Unfinished(0 if at_start else int(self._steps[index]), seed)
                part = [np.array(stored_bytes(rows[item.path][index, start:stop], item)) for item in self.fields]
                self._unfinished[index].parts.append((origin, part))
                if number < len(ends):
                    self._finish(index, finished=True)
        self.writer.flush_if_due()

    def close(self, *, complete: bool) -> None:
        """Writes the episodes that have not ended, marked so, and closes the file."""
        for index in sorted(self._unfinished):
            self._finish(index, finished=False)
        self.writer.close(complete=complete)

    def _finish(self, index: int, *, finished: bool) -> None:
        """Writes the episode of an env, if there is one."""
        episode = self._unfinished.pop(index, None)
        if episode is None:
            return
        lengths = [len(part[0]) for _, part in episode.parts]
        n_rows = sum(lengths)
        columns = {
            "episode": self._n_episodes,
            "start": self.writer.rows,
            "length": n_rows,
            "n_steps": episode.first_t + n_rows,
            "seed": episode.seed,
            "finished": finished and episode.first_t == 0,
        }
        rewards = [sum(part[reward].sum(0, np.float64) for _, part in episode.parts) for reward in self._rewards]
        self.writer.add_episodes(
            {name: np.array([value]) for name, value in columns.items()}, np.concatenate(rewards)[None]
        )
        t = episode.first_t + np.arange(n_rows)
        first = 0
        for (origin, part), length in zip(episode.parts, lengths):
            numbers = (t[first : first + length], *(np.full(length, n) for n in (self.envs[index], self._n_episodes)))
            self.writer.enter_checkpoint(*origin)
            self.writer.append([values[None] for values in (*part, *numbers)])
            first += length
        self._n_episodes += 1
