"""EpisodeRecorder: watches `play` and hands whole episodes to the file.

In a step it only keeps what cannot be told later, and leaves even copying to later where it can. Episodes that have
ended wait until there are some thousand rows of them; then actors and critics run over all of these for what they had
inside, labels are asked for, and the rows appended: a call costs as much as a hundred rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.models.policies.policy import ActorOutput
from marlnb.recording.capture.columns import Columns
from marlnb.recording.capture.finished_episodes import Ended, Lying
from marlnb.recording.capture.pieces import Copies
from marlnb.recording.capture.ring_buffer import InFlight
from marlnb.recording.capture.schema import Contents
from marlnb.recording.capture.sources import T
from marlnb.recording.capture.waiting import Waiting
from marlnb.recording.file.frames import FrameStore
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RowWriter
from marlnb.training.collect.episodes import TOLD_ALL, TimeStep, Rest

FIRST_CAPACITY = 256
STREAM_ROWS = 128
WAITING_ROWS = 8192
PASS_ROWS = 2048
ONLY_AFTER = Rest(before=True)


@dataclass(frozen=True, slots=True)
class Lasting:
    """What is new at each moment and may be read later; all else of a moment would only be held up."""

    output: Mapping[str, ActorOutput]
    t: Tensor
    recurrent: Mapping[str, Tensor | None]

    @classmethod
    def of(cls, time_step: TimeStep) -> Lasting:
        return cls(time_step.output, time_step.t, time_step.recurrent)


class EpisodeRecorder:
    """A watcher of `marlnb.training.collect.episodes.play`.

    Args:
        activations: what `capture` fills; emptied at each step, so that none is recorded twice.
        every: keeps the steps t = 0, `every`, 2 `every` ... of each episode.
        on_episodes: called with the number of episodes that have just been appended.
        first_episode: the number of the episode that `play` calls 0.
        fields: the file's, where their order is another than that of the contents.
    """

    def __init__(
        self,
        env: VectorEnv,
        contents: Contents,
        writer: RowWriter,
        *,
        every: int,
        activations: dict[str, Tensor],
        frames: FrameStore | None = None,
        on_episodes: Callable[[int], None] = lambda n: None,
        first_episode: int = 0,
        fields: Sequence[Field] | None = None,
    ) -> None:
        self.contents, self.writer, self.every = contents, writer, every
        self.activations, self.frames, self.on_episodes = activations, frames, on_episodes
        self.first_episode = first_episode
        capacity = -(-env.spec.max_steps // every) if env.spec.max_steps else FIRST_CAPACITY
        self._waiting_rows = min(WAITING_ROWS, writer.block_rows)
        capacity += -(-self._waiting_rows // env.n_envs)
        folder = Path(writer.path).parent
        self._ring = InFlight(contents.buffered, env.n_envs, capacity, folder)
        self._columns = Columns(contents, self._ring, fields or contents.fields)
        self._ended = Ended(contents.selections)
        self._begun = np.zeros(env.n_envs, np.int64)
        self._begins: np.ndarray | None = np.ones(env.n_envs, bool)  # copies whose episode begins with the next moment
        self._limit = self._ring.capacity
        self._alone = env.n_envs == 1
        self._followed = [critic for critic in contents.critics if critic.by_step]
        lasting = [source for source in (*contents.before, *contents.context) if source.lasts]
        only_outputs = all(source.of_output is not None for source in lasting)
        self._waiting = Waiting(
            self._ring,
            (*contents.before, *contents.context),
            contents.after,
            between=len(self._ring.fields) - len(contents.before) - len(contents.context) - len(contents.after),
            activations=activations,
            keep=attrgetter("output") if only_outputs else Lasting.of,
            late=attrgetter("of_output" if only_outputs else "get"),
        )
        self._may_be_brief = only_outputs and every == 1 and frames is None and not self._followed
        self._brief = 0  # steps, from this one on, of which outputs and the memory are all that is to be kept
        self._outputs: list[Mapping[str, ActorOutput]] = []
        self._due, self._rest = False, TOLD_ALL
        self._streamed = 0

    def before_step(self, time_step: TimeStep) -> None:
        values = self._follow_critics(time_step) if self._followed else ()
        if self._begins is not None:
            self._begun[self._begins] = self._ring.position
            self._episode = time_step.episode.numpy()
            self._begins = None
        if self.every > 1:
            if not self._is_due(time_step):
                return
            self._waiting.begin()
        self._due = True
        if self._ring.position >= self._limit:
            self._make_room()
        if not self._waiting.only_waits:
            self._waiting.before(time_step, values)
        if self.frames is not None:
            self.frames.draw(time_step.env, self._episode >= 0, time_step.t.numpy(), self._ring.position)
        if self._may_be_brief and self._waiting.only_waits and self._waiting.copies is not None:
            self._be_brief(self._waiting.copies)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> Rest:
        if self._brief:  # what this path touches, the environment finds no more in the processor's cache
            self._outputs.append(time_step.output)
            next(self._slots)[:] = self._memory
            if len(self._outputs) < self._brief and not ended:
                return ONLY_AFTER
            self._catch_up(time_step, step)
        elif self._due:
            self._waiting.after(time_step, step, step.memory)
            self._ring.position += 1
            self._due = False
        if ended:
            done = step.done.cpu().numpy()
            self._begins = done.copy()
            self._finish(np.flatnonzero(done & (self._episode >= 0)), time_step, step)
            return TOLD_ALL
        if self._alone and self._ring.position - self._begun[0] >= STREAM_ROWS:
            self._stream()
        return TOLD_ALL if self._followed else self._rest

    def _be_brief(self, copies: Copies) -> None:
        """From this step on until an episode ends, or something has to be looked after."""
        self._brief = min(self._waiting.room, self._limit - self._ring.position)
        if self._alone:
            self._brief = min(self._brief, STREAM_ROWS - int(self._ring.position - self._begun[0]))
        self._memory, self._slots = copies.memory, copies.following()

    def _catch_up(self, time_step: TimeStep, step: Step) -> None:
        """Hands on what was kept of the last steps; these were the last moment and step."""
        self._waiting.after_many(self._outputs, time_step, step)
        self._ring.position += len(self._outputs)
        self._brief = 0
        self._outputs.clear()
        self._due = False

    def _is_due(self, time_step: TimeStep) -> bool:
        """Whether a copy that counts is at a step to be kept; sets for how many steps after it none is."""
        left = self.every - time_step.t.numpy() % self.every  # `every` itself where it is such a step
        counted = left[self._episode >= 0]
        self._rest = Rest(int(counted.min(initial=self.every)) - 1)
        return self.every in counted.tolist()

    def _follow_critics(self, time_step: TimeStep) -> list[Tensor]:
        """Values, activations and entering states of the critics that go step by step."""
        begins = None if self._begins is None else torch.from_numpy(self._begins)
        found = []
        for critic in self._followed:
            acting = None if time_step.env.spec.simultaneous else time_step.acting[critic.selection.group.name]
            found += critic.follow(time_step.observation, time_step.state, begins, acting)
        return found

    def _make_room(self) -> None:
        """Keeps every step of the episodes that still run."""
        self.settle()
        self._waiting.copy()
        counted = self._episode >= 0
        oldest = int(self._begun[counted].min())
        if self._ring.position - oldest >= self._ring.capacity:
            self._ring.grow(oldest)
        self._limit = oldest + self._ring.capacity

    def settle(self) -> None:
        """Appends the episodes that have ended and wait; to be called when `play` has ended, however it did.

        Raises:
            RecordingError: the disk is full.
        """
        if not self._ended.steps:
            return
        columns, returns, begun, copies = self._ended.taken()
        columns["episode"] += self.first_episode
        lying = self._lying(copies, columns["episode"], begun, columns.pop("stop"))
        lengths = lying.lengths
        lengths[0] += self._streamed  # only of a lone copy, whose episodes wait for none
        starts = self.writer.rows - self._streamed + np.cumsum(lengths) - lengths
        self.writer.add_episodes({**columns, "start": starts, "length": lengths}, returns)
        self._streamed = 0
        self._append(lying)

    def _finish(self, copies: np.ndarray, time_step: TimeStep, step: Step) -> None:
        """Puts the episodes of these copies, which end here, to those that wait."""
        if len(copies):
            self._ended.add(copies, self._begun, self._ring.position, time_step, step)
        if self._streamed or self._ended.steps >= self._waiting_rows or self.writer.flush_is_due:
            self.settle()
        self.on_episodes(len(copies))
        self.writer.flush_if_due()

    def _stream(self) -> None:
        """Appends what a lone copy has so far: its rows lie together anyhow, so none need wait for the end."""
        self.settle()
        number, stop = self._episode + self.first_episode, np.array([self._ring.position])
        lying = self._lying(np.zeros(1, np.int64), number, self._begun, stop)
        self._append(lying)
        self._streamed += int(lying.lengths[0])
        self._begun[0] = self._ring.position
        self.writer.flush_if_due()

    def _lying(self, copies: np.ndarray, numbers: np.ndarray, begun: np.ndarray, stop: np.ndarray) -> Lying:
        """The rows of episodes, `[episode]` each, one after the other."""
        self._waiting.copy()
        lying = Lying.between(copies, numbers, begun, stop, first=self._streamed)
        if self.every > 1:
            t = self._ring.rows(self._ring.fields.index(T.field), lying.flat(self._ring))
            return lying.every(self.every, t)
        return lying

    def _append(self, lying: Lying) -> None:
        """Writes rows, so many at a time that what is computed stays in the processor's cache."""
        row, n_rows = self.writer.rows, len(lying.positions)
        if not n_rows:
            return
        flat = lying.flat(self._ring)
        with self._columns.ready():
            for part in np.array_split(np.arange(n_rows), -(-n_rows // PASS_ROWS)):
                rows = slice(int(part[0]), int(part[-1]) + 1)
                columns = self._columns.of(flat[rows], lying.t[rows], lying.copies[rows], lying.numbers[rows])
                self.writer.append([column[None] for column in columns])
        if self.frames is not None:
            for start, stop in lying.bounds():
                positions = lying.positions[start:stop].tolist()
                self.frames.append(int(lying.copies[start]), positions, row + start)
