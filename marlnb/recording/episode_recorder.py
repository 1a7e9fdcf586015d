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
from marlnb.recording.critics import GroupCritic
from marlnb.recording.frames import FrameStore
from marlnb.recording.inflight import InFlight
from marlnb.recording.layout import Field
from marlnb.recording.sources import Selection, Source
from marlnb.recording.writer import RecordingWriter
from marlnb.training.episodes import Moment

FIRST_CAPACITY = 256


@dataclass(frozen=True)
class Contents:
    """Everything that one recording holds, in the order of its fields.

    Attributes:
        selections: the groups and agents that are recorded.
        before, after: what is read before and after the environment steps.
        critics: of the groups whose values are recorded.
        context: read but not written: what a critic needs beyond what is recorded.
        critic_inputs: the path of the field with each group's observations of all its agents.
    """

    selections: Sequence[Selection]
    before: Sequence[Source]
    critics: Sequence[GroupCritic]
    after: Sequence[Source]
    context: Sequence[Source] = ()
    critic_inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> list[Field]:
        """The datasets of the file."""
        return [
            *(source.field for source in self.before),
            *(item for critic in self.critics for item in critic.fields),
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
        self._limit = self._ring.capacity
        self._returns = [np.zeros((env.n_envs, s.group.n_agents)) for s in contents.selections]
        self._index = {item.path: index for index, item in enumerate(buffered)}
        self._lay_out()
        self._due = True
        self._values: dict[int, list[Tensor]] = {}

    def before_step(self, moment: Moment) -> None:
        t = moment.t.numpy()
        begins = t == 0
        if begins.any():
            self._begun[begins] = self._ring.position
            self._episode = moment.episode.numpy()
            self._seed = moment.episode_seed.numpy()
        self._follow_critics(moment, begins)
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
            returns += step.groups[selection.group.name].reward.cpu().numpy()
        if self._due:
            self._ring.put(self._after_at, [source.get(step) for source in self.contents.after])
            self._ring.position += 1
        done = step.done.cpu().numpy()
        if done.any():
            self._finish(np.flatnonzero(done & (self._episode >= 0)), moment.t.numpy() + 1)
            for returns in self._returns:
                returns[done] = 0.0

    def _lay_out(self) -> None:
        """Where each kind of field begins in the buffers."""
        n_critic = [len(critic.fields) for critic in self.contents.critics]
        starts = len(self.contents.before) + np.cumsum([0, *n_critic])
        self._critic_at = [int(start) for start in starts[:-1]]
        self._after_at = int(starts[-1])
        self._context_at = self._n_written

    def _follow_critics(self, moment: Moment, begins: np.ndarray) -> None:
        for at, critic in zip(self._critic_at, self.contents.critics):
            if critic.by_step:
                outputs = critic.follow(moment.observation, moment.state, torch.from_numpy(begins))
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
        stop = self._ring.position
        for begun, members in groupby(copies.tolist(), key=lambda copy: int(self._begun[copy])):
            for run in _neighbours(list(members)):
                start_row = self.writer.rows
                lengths = self._append(run, begun, stop)
                for copy, length in zip(run, lengths):
                    self._enter(copy, start_row, length, int(n_steps[copy]))
                    start_row += length
        self.on_episodes(len(copies))
        self.writer.flush_if_due()

    def _append(self, run: list[int], begun: int, stop: int) -> list[int]:
        """Rows of neighbouring copies that ran from position `begun` to `stop`; returns how many of each."""
        rows = slice(run[0], run[-1] + 1)
        slots = list(self._ring.spans(begun, stop))
        for span in slots:
            self._evaluate_critics(rows, span)
        kept = np.concatenate([self._ring.array(0)[rows, span] for span in slots], axis=1) % self.every == 0
        row = self.writer.rows
        if kept.all() and len(slots) == 1:
            self._write(rows, slots[0])
        else:
            for copy, keeps in zip(run, kept):
                self._write(slice(copy, copy + 1), (np.flatnonzero(keeps) + begun) % self._ring.capacity)
        lengths = kept.sum(axis=1).tolist()
        if self.frames is not None:
            for copy, keeps, first in zip(run, kept, row + np.cumsum([0, *lengths])):
                self.frames.append(copy, np.flatnonzero(keeps) + begun, int(first))
        return lengths

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
            for index, output in enumerate(critic.evaluate(inputs, state), at):
                target = self._ring.tensor(index)[rows, span]
                target.copy_(output.reshape(target.shape))

    def _rows_of(self, path: str, rows: slice, span: slice) -> Tensor:
        """A buffered field, `[row, ...]`."""
        return self._ring.tensor(self._index[path])[rows, span].flatten(0, 1)

    def _enter(self, copy: int, start: int, length: int, n_steps: int) -> None:
        columns = {
            "episode": int(self._episode[copy]),
            "start": start,
            "length": length,
            "n_steps": n_steps,
            "seed": int(self._seed[copy]),
        }
        returns = [sums[copy, list(s.indices)] for sums, s in zip(self._returns, self.contents.selections)]
        self.writer.add_episode(columns, np.concatenate(returns))


def _neighbours(copies: list[int]) -> list[list[int]]:
    """Ascending copies cut into runs without gaps: [1, 2, 5] -> [1, 2], [5]."""
    return [[copy for _, copy in run] for _, run in groupby(enumerate(copies), key=lambda pair: pair[1] - pair[0])]
