"""EpisodeRecorder: watches `play` and hands whole episodes to the file.

In a step it only copies tensors into buffers that exist already. When an episode ends it runs the critics over it and
appends its rows; copies whose episodes ran side by side are appended together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import SiteError
from marlnb.recording.built_in_labels import MOMENT, BuiltInLabels
from marlnb.recording.critics import GroupCritic
from marlnb.recording.frames import FrameStore
from marlnb.recording.inflight import InFlight
from marlnb.recording.layout import Field
from marlnb.recording.sources import Selection, Source
from marlnb.recording.writer import RecordingWriter
from marlnb.training.episodes import Moment

FIRST_CAPACITY = 256
STREAM_ROWS = 128


@dataclass(frozen=True)
class Contents:
    """Everything that one recording holds, in the order of its fields.

    Attributes:
        selections: the groups and agents that are recorded.
        before, after: what is read before and after the environment steps.
        critics: of the groups whose values are recorded.
        labels: the environment's own, where it tells them later.
        context: read but not written: what a critic needs beyond what is recorded.
        critic_inputs: the path of the field with each group's observations of all its agents.
    """

    selections: Sequence[Selection]
    before: Sequence[Source]
    critics: Sequence[GroupCritic]
    after: Sequence[Source]
    context: Sequence[Source] = ()
    critic_inputs: Mapping[str, str] = field(default_factory=dict)
    labels: BuiltInLabels | None = None

    @property
    def fields(self) -> list[Field]:
        """The datasets of the file."""
        return [
            *(source.field for source in self.before),
            *(item for critic in self.critics for item in critic.fields),
            *(self.labels.fields if self.labels is not None else ()),
            *(source.field for source in self.after),
            Field("steps/env_id", (), (), "int64"),
            Field("steps/episode", (), (), "int64"),
        ]


class EpisodeRecorder:
    """A watcher of `marlnb.training.episodes.play`.

    Args:
        activations: what `capture` fills; emptied at each step, so that none is recorded twice.
        every: keeps the steps t = 0, `every`, 2 `every` ... of each episode.
        on_episodes: called with the number of episodes that have just been appended.
    """

    def __init__(
        self,
        env: VectorEnv,
        contents: Contents,
        writer: RecordingWriter,
        *,
        every: int,
        activations: dict[str, Tensor],
        frames: FrameStore | None = None,
        on_episodes: Callable[[int], None] = lambda n: None,
    ) -> None:
        self.contents, self.writer, self.every = contents, writer, every
        self.activations, self.frames, self.on_episodes = activations, frames, on_episodes
        buffered = [*contents.fields[:-2], *(source.field for source in contents.context)]
        capacity = -(-env.spec.max_steps // every) if env.spec.max_steps else FIRST_CAPACITY
        self._ring = InFlight(buffered, env.n_envs, capacity, Path(writer.path).parent)
        self._n_written = len(contents.fields) - 2
        self._begun = np.zeros(env.n_envs, np.int64)
        self._begins: np.ndarray | None = np.ones(env.n_envs, bool)  # copies whose episode begins with the next moment
        self._limit = self._ring.capacity
        sizes = [(env.n_envs, selection.group.n_agents) for selection in contents.selections]
        self._returns = [torch.zeros(size, dtype=torch.float64) for size in sizes]
        self._index = {item.path: index for index, item in enumerate(buffered)}
        self._alone = env.n_envs == 1
        self._lay_out()
        self._due = True
        self._streamed = 0
        self._values: dict[int, list[Tensor]] = {}

    def before_step(self, moment: Moment) -> None:
        if self._begins is not None:
            self._begun[self._begins] = self._ring.position
            self._episode, self._seed = moment.episode.numpy(), moment.episode_seed.numpy()
        self._follow_critics(moment)
        self._begins = None
        t = moment.t.numpy()
        self._due = self.every == 1 or bool(((t % self.every == 0) & (self._episode >= 0)).any())
        if not self._due:
            return
        if self._ring.position >= self._limit:
            self._make_room()
        try:
            self._ring.put(0, [source.get(moment) for source in self.contents.before])
        except KeyError as error:
            raise SiteError(f"the site {error} fired at first, but not at every step") from error
        self.activations.clear()
        for at, outputs in self._values.items():
            self._ring.put(at, outputs)
        self._ring.put(self._context_at, [source.get(moment) for source in self.contents.context])
        if self.frames is not None:
            self.frames.draw(moment.env, self._episode >= 0, t, self._ring.position)

    def after_step(self, moment: Moment, step: Step) -> None:
        for returns, selection in zip(self._returns, self.contents.selections):
            returns.add_(step.groups[selection.group.name].reward.cpu())
        if self._due:
            self._ring.put(self._after_at, [source.get(step) for source in self.contents.after])
            self._ring.position += 1
        if step.done.any():
            done = step.done.cpu().numpy().copy()
            self._finish(np.flatnonzero(done & (self._episode >= 0)), moment.t.numpy() + 1)
            for returns in self._returns:
                returns[done] = 0.0
            self._begins = done
        elif self._alone and self._ring.position - self._begun[0] >= STREAM_ROWS:
            self._stream()

    def _lay_out(self) -> None:
        """Where each kind of field begins in the buffers."""
        n_critic = [len(critic.fields) for critic in self.contents.critics]
        starts = len(self.contents.before) + np.cumsum([0, *n_critic])
        self._critic_at = [int(start) for start in starts[:-1]]
        self._labels_at = int(starts[-1])
        n_labels = len(self.contents.labels.fields) if self.contents.labels is not None else 0
        self._after_at = self._labels_at + n_labels
        self._context_at = self._n_written

    def _follow_critics(self, moment: Moment) -> None:
        for at, critic in zip(self._critic_at, self.contents.critics):
            if critic.by_step:
                begins = None if self._begins is None else torch.from_numpy(self._begins)
                acting = None if moment.env.spec.simultaneous else moment.acting[critic.selection.group.name]
                outputs = critic.follow(moment.observation, moment.state, begins, acting)
                self._values[at] = outputs

    def _make_room(self) -> None:
        """Keeps every step of the episodes that still run."""
        counted = self._episode >= 0
        oldest = int(self._begun[counted].min())
        if self._ring.position - oldest >= self._ring.capacity:
            self._ring.grow(oldest)
        self._limit = oldest + self._ring.capacity

    def _finish(self, copies: np.ndarray, n_steps: np.ndarray) -> None:
        """Appends the episodes of these copies; neighbours that began together go together."""
        for begun, members in groupby(copies.tolist(), key=lambda copy: int(self._begun[copy])):
            for run in _neighbours(list(members)):
                positions, kept = self._positions(run, begun)
                self._enter(run, kept.sum(axis=1), n_steps)
                self._append(run, positions, kept)
        self.on_episodes(len(copies))
        self.writer.flush_if_due()

    def _stream(self) -> None:
        """Appends what a lone copy has so far: its rows lie together anyhow, so none need wait for the end."""
        positions, kept = self._positions([0], int(self._begun[0]))
        self._streamed += int(kept.sum())
        self._append([0], positions, kept)
        self._begun[0] = self._ring.position
        self.writer.flush_if_due()

    def _positions(self, run: list[int], begun: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions from `begun` to now, and which of them hold a step to be kept, `[copy, position]`."""
        positions = np.arange(begun, self._ring.position)
        t = self._ring.array(0)[run[0] : run[-1] + 1, positions % self._ring.capacity]
        return positions, t % self.every == 0

    def _append(self, run: list[int], positions: np.ndarray, kept: np.ndarray) -> None:
        """Appends the rows of neighbouring copies."""
        if not len(positions):
            return
        rows, row, slots = slice(run[0], run[-1] + 1), self.writer.rows, positions % self._ring.capacity
        spans = [slice(part[0], part[-1] + 1) for part in np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1)]
        for span in spans:
            self._evaluate_critics(rows, span)
            if self.contents.labels is not None:
                self._put_rows(
                    self._labels_at, self.contents.labels.tell(self._rows_of(MOMENT, rows, span)), rows, span
                )
        if kept.all() and len(spans) == 1:
            self._write(rows, spans[0])
        else:
            for copy, keeps in zip(run, kept):
                self._write(slice(copy, copy + 1), slots[keeps])
        if self.frames is not None:
            for copy, keeps, first in zip(run, kept, row + np.cumsum([0, *kept.sum(axis=1)])):
                self.frames.append(copy, positions[keeps], int(first))

    def _write(self, rows: slice, slots: slice | np.ndarray) -> None:
        sources = [self._ring.array(index)[rows, slots] for index in range(self._n_written)]
        shape = sources[0].shape[:2]
        env_id = np.arange(rows.start, rows.stop)[:, None]
        sources.append(np.broadcast_to(env_id, shape))
        sources.append(np.broadcast_to(self._episode[rows][:, None], shape))
        self.writer.append(sources)

    def _evaluate_critics(self, rows: slice, span: slice) -> None:
        """Fills the buffers of feed-forward critics for these copies and slots."""
        for at, critic in zip(self._critic_at, self.contents.critics):
            if critic.by_step:
                continue
            inputs = {name: self._rows_of(path, rows, span) for name, path in self.contents.critic_inputs.items()}
            state = self._rows_of("steps/state", rows, span) if "steps/state" in self._index else None
            self._put_rows(at, critic.evaluate(inputs, state), rows, span)

    def _tell_labels(self, rows: slice, span: slice) -> None:
        """Fills the buffers of the labels that the environment tells later."""
        labels = self.contents.labels
        if labels is not None:
            self._put_rows(self._labels_at, labels.tell(self._rows_of(MOMENT, rows, span)), rows, span)

    def _put_rows(self, first: int, outputs: Sequence[Tensor], rows: slice, span: slice) -> None:
        """Fills the buffers of fields `first`, `first` + 1, ... with tensors `[row, ...]`."""
        for index, output in enumerate(outputs, first):
            target = self._ring.tensor(index)[rows, span]
            target.copy_(output.reshape(target.shape))

    def _rows_of(self, path: str, rows: slice, span: slice) -> Tensor:
        """A buffered field, `[row, ...]`."""
        return self._ring.tensor(self._index[path])[rows, span].flatten(0, 1)

    def _enter(self, run: list[int], lengths: np.ndarray, n_steps: np.ndarray) -> None:
        """Enters the episodes of neighbouring copies, whose rows come next."""
        copies, lengths = slice(run[0], run[-1] + 1), lengths + self._streamed
        columns = {
            "episode": self._episode[copies],
            "start": self.writer.rows - self._streamed + np.cumsum(lengths) - lengths,
            "length": lengths,
            "n_steps": n_steps[copies],
            "seed": self._seed[copies],
        }
        returns = [sums[copies, list(s.indices)].numpy() for sums, s in zip(self._returns, self.contents.selections)]
        self.writer.add_episodes(columns, np.concatenate(returns, axis=1))
        self._streamed = 0


def _neighbours(copies: list[int]) -> list[list[int]]:
    """Ascending copies cut into runs without gaps: [1, 2, 5] -> [1, 2], [5]."""
    return [[copy for _, copy in run] for _, run in groupby(enumerate(copies), key=lambda pair: pair[1] - pair[0])]
