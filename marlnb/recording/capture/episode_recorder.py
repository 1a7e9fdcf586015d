"""EpisodeRecorder: a callback of `play` that buffers steps and writes whole episodes.

At each step it copies what cannot be computed later into a ring buffer. Finished episodes wait there until there are
some thousand rows of them. Then actors and critics run over all those rows at once to fill in activations and values,
the environment's labels are computed, and the rows are appended to the file. One such pass over many rows is much
cheaper than a hook at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import SiteError
from marlnb.models.hooks import episode_context
from marlnb.recording.capture.columns import Columns
from marlnb.recording.capture.finished_episodes import EpisodeRows, FinishedEpisodes
from marlnb.recording.capture.ring_buffer import RingBuffer
from marlnb.recording.capture.schema import RecordingSchema
from marlnb.recording.capture.sources import T
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RowWriter
from marlnb.training.collect.episodes import TimeStep

INITIAL_CAPACITY = 256  # steps, where the environment does not state its longest episode
STREAM_ROWS = 128  # a single env's rows are written after so many, without waiting for the episode's end
MAX_PENDING_ROWS = 8192  # of finished episodes
PASS_ROWS = 2048  # rows that networks and writer process at once; they fit into the processor's cache


class EpisodeRecorder:
    """Records every episode that `marlnb.training.collect.episodes.play` plays.

    Args:
        writer: where whole episodes are appended.
        every: records the steps t = 0, `every`, 2 `every`, ... of each episode.
        activations: filled by `capture`; emptied at each step, so that no activation is recorded twice.
        on_episodes: called with the number of episodes that have just finished.
        first_episode: the number of the episode that `play` calls 0.
        fields: the file's fields, where their order differs from the schema's.
    """

    def __init__(
        self,
        env: VectorEnv,
        schema: RecordingSchema,
        writer: RowWriter,
        *,
        every: int,
        activations: dict[str, Tensor],
        frames: FrameStore | None = None,
        on_episodes: Callable[[int], None] = lambda n: None,
        first_episode: int = 0,
        fields: Sequence[Field] | None = None,
    ) -> None:
        self.schema, self.writer, self.every = schema, writer, every
        self.activations, self.frames, self.on_episodes = activations, frames, on_episodes
        self.first_episode = first_episode
        self._max_pending_rows = min(MAX_PENDING_ROWS, writer.block_rows)
        capacity = -(-env.spec.max_steps // every) if env.spec.max_steps else INITIAL_CAPACITY
        capacity += -(-self._max_pending_rows // env.n_envs)
        self._ring = RingBuffer(schema.buffered, env.n_envs, capacity, Path(writer.path).parent)
        self._capacity_limit = self._ring.capacity  # the position at which the oldest row needed would be overwritten
        self._columns = Columns(schema, self._ring, fields or schema.fields)
        self._finished = FinishedEpisodes(schema.selections)
        self._before = [source.get for source in (*schema.before, *schema.context)]
        self._after = [source.get for source in schema.after]
        self._first_after = len(self._ring.fields) - len(self._after)
        self._stepwise_critics = [critic for critic in schema.critics if critic.by_step]
        self._start = np.zeros(env.n_envs, np.int64)  # ring position of each env's first row not written yet
        self._starts_next: np.ndarray | None = np.ones(env.n_envs, bool)  # envs whose episode starts with the next step
        self._is_recorded = False  # whether the current step is
        self._single_env = env.n_envs == 1
        self._n_streamed = 0  # rows of a single env's episode that are written before its end

    def before_step(self, time_step: TimeStep) -> None:
        critic_values = self._run_stepwise_critics(time_step) if self._stepwise_critics else []
        if self._starts_next is not None:
            self._start[self._starts_next] = self._ring.position
            self._episode = time_step.episode.numpy()
            self._starts_next = None
        self._is_recorded = self.every == 1 or self._is_on_stride(time_step)
        if not self._is_recorded:
            return
        if self._ring.position >= self._capacity_limit:
            self._make_room()
        try:
            self._ring.put(0, [get(time_step) for get in self._before] + critic_values)
        except KeyError as error:
            raise SiteError(f"the site {error} fired at first, but not at every step") from error
        self.activations.clear()
        if self.frames is not None:
            self.frames.render(time_step.env, self._episode >= 0, time_step.t.numpy(), self._ring.position)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        if self._is_recorded:
            self._ring.put(self._first_after, [get(step) for get in self._after])
            self._ring.position += 1
        if ended:
            self._starts_next = step.done.cpu().numpy().copy()
            self._finish(np.flatnonzero(self._starts_next & (self._episode >= 0)), time_step, step)
        elif self._single_env and self._ring.position - self._start[0] >= STREAM_ROWS:
            self._stream()

    def write_finished(self) -> None:
        """Appends the finished episodes that wait. Call it when `play` has returned or raised.

        Raises:
            RecordingError: the disk is full.
        """
        if not self._finished:
            return
        columns = self._finished.pop_all()
        envs, start, stop, returns = (columns.pop(name) for name in ("env_index", "start", "stop", "return"))
        columns["episode"] += self.first_episode
        rows = self._rows_of(envs, columns["episode"], start, stop)
        lengths = rows.lengths.copy()
        lengths[0] += self._n_streamed  # not zero only for a single env, whose episodes are written one by one
        first_rows = self.writer.rows - self._n_streamed + np.cumsum(lengths) - lengths
        self.writer.add_episodes({**columns, "start": first_rows, "length": lengths}, returns)
        self._n_streamed = 0
        self._append(rows)

    def _is_on_stride(self, time_step: TimeStep) -> bool:
        """Whether any env that counts is at a step to be recorded."""
        return bool((time_step.t.numpy()[self._episode >= 0] % self.every == 0).any())

    def _run_stepwise_critics(self, time_step: TimeStep) -> list[Tensor]:
        """Values, activations and entering states of the critics that must run at every step."""
        starts = None if self._starts_next is None else torch.from_numpy(self._starts_next)
        tensors = []
        with episode_context.at(time_step.episode, time_step.t, time_step.alive):
            for critic in self._stepwise_critics:
                acting = None if time_step.env.spec.simultaneous else time_step.acting[critic.selection.group.name]
                tensors += critic.run_step(time_step.observation, time_step.state, starts, acting)
        return tensors

    def _make_room(self) -> None:
        """Writes what has finished and keeps every step of the unfinished episodes."""
        self.write_finished()
        oldest = int(self._start[self._episode >= 0].min())
        if self._ring.position - oldest >= self._ring.capacity:
            self._ring.grow(oldest)
        self._capacity_limit = oldest + self._ring.capacity

    def _finish(self, envs: np.ndarray, time_step: TimeStep, step: Step) -> None:
        """Adds the episodes of `envs`, which end with this step, to the finished ones."""
        if len(envs):
            self._finished.add(envs, self._start, self._ring.position, time_step, step)
        if self._n_streamed or self._finished.n_steps >= self._max_pending_rows or self.writer.flush_is_due:
            self.write_finished()
        self.on_episodes(len(envs))
        self.writer.flush_if_due()

    def _stream(self) -> None:
        """Writes a single env's rows so far. They are adjacent anyway, so they need not wait for the episode's end."""
        self.write_finished()
        stop = np.array([self._ring.position])
        rows = self._rows_of(np.zeros(1, np.int64), self._episode + self.first_episode, self._start, stop)
        self._append(rows)
        self._n_streamed += int(rows.lengths[0])
        self._start[0] = self._ring.position
        self.writer.flush_if_due()

    def _rows_of(self, envs: np.ndarray, episodes: np.ndarray, start: np.ndarray, stop: np.ndarray) -> EpisodeRows:
        rows = EpisodeRows.from_spans(envs, episodes, start, stop, first_t=self._n_streamed)
        if self.every == 1:
            return rows
        # The ring has a slot for every step at which any env was on its stride, so t cannot be counted.
        t = self._ring.rows(self._ring.fields.index(T.field), rows.flat_rows(self._ring))
        return rows.every(self.every, t)

    def _append(self, rows: EpisodeRows) -> None:
        first_row, n_rows = self.writer.rows, len(rows.positions)
        if not n_rows:
            return
        flat_rows = rows.flat_rows(self._ring)
        with self._columns.ready():
            for part in np.array_split(np.arange(n_rows), -(-n_rows // PASS_ROWS)):
                span = slice(int(part[0]), int(part[-1]) + 1)
                columns = self._columns.of(flat_rows[span], rows.t[span], rows.envs[span], rows.episodes[span])
                self.writer.append([column[None] for column in columns])
        if self.frames is not None:
            for start, stop in rows.bounds():
                self.frames.append(int(rows.envs[start]), rows.positions[start:stop].tolist(), first_row + start)
