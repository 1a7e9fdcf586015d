"""EpisodeRecorder: watches `play` and hands whole episodes to the file.

In a step it only copies into buffers that exist already, and only what cannot be told later. Episodes that have ended
wait there until there are some hundred rows of them; then actors and critics run over all of these for what they had
inside, labels are asked for, and the rows appended: a call costs as much as a hundred rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import SiteError
from marlnb.recording.columns import Columns
from marlnb.recording.contents import Contents
from marlnb.recording.frames import FrameStore
from marlnb.recording.inflight import InFlight
from marlnb.recording.layout import Field
from marlnb.recording.writer import RowWriter
from marlnb.training.episodes import Moment

FIRST_CAPACITY = 256
STREAM_ROWS = 128
WAITING_ROWS = 1024
MOST_ROWS = 16384


@dataclass(frozen=True)
class Ended:
    """Episodes of neighbouring copies that ended together.

    Attributes:
        copies: the first, and one past the last.
        positions: `[position]` in the ring; kept: `[copy, position]`, which of them hold a step to be kept.
        columns: of the table of episodes, `[copy]` each, without `start`; returns `[copy, agent]`.
    """

    copies: tuple[int, int]
    positions: np.ndarray
    kept: np.ndarray
    columns: Mapping[str, np.ndarray]
    returns: np.ndarray

    def goes_on_from(self, other: Ended) -> bool:
        """Whether the rows of both lie side by side."""
        return (
            self.copies == other.copies
            and int(self.positions[0]) == int(other.positions[-1]) + 1
            and bool(self.kept.all() and other.kept.all())
        )


class EpisodeRecorder:
    """A watcher of `marlnb.training.episodes.play`.

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
        self._ring = InFlight(contents.buffered, env.n_envs, capacity, Path(writer.path).parent)
        self._columns = Columns(contents, self._ring, fields or contents.fields)
        self._ended: list[Ended] = []
        self._begun = np.zeros(env.n_envs, np.int64)
        self._begins: np.ndarray | None = np.ones(env.n_envs, bool)  # copies whose episode begins with the next moment
        self._limit = self._ring.capacity
        self._alone = env.n_envs == 1
        self._followed = [critic for critic in contents.critics if critic.by_step]
        self._critics_at = len(contents.before)
        self._after_at = self._critics_at + sum(len(critic.fields) for critic in self._followed)
        self._context_at = self._after_at + len(contents.after)
        self._before = [source.get for source in contents.before]
        self._context = [source.get for source in contents.context]
        self._after = [source.get for source in contents.after]
        self._clock = self._next = 0  # steps of `play`, and the one at which a step is next to be kept
        self._due = True
        self._streamed = 0

    def before_step(self, moment: Moment) -> None:
        if self._begins is not None:
            self._begun[self._begins] = self._ring.position
            self._episode, self._seed = moment.episode.numpy(), moment.episode_seed.numpy()
            self._next = self._clock
        values = self._follow_critics(moment) if self._followed else []
        self._begins = None
        self._due = self._clock >= self._next and self._look_when(moment)
        self._clock += 1
        if self._due:
            self._keep(moment, values)

    def after_step(self, moment: Moment, step: Step) -> None:
        if self._due:
            self._ring.put(self._after_at, [get(step) for get in self._after])
            self._ring.position += 1
        if step.done.any():
            done = step.done.cpu().numpy().copy()
            self._finish(np.flatnonzero(done & (self._episode >= 0)), moment, step)
            self._begins = done
        elif self._alone and self._due and self._ring.position - self._begun[0] >= STREAM_ROWS:
            self._stream()

    def _look_when(self, moment: Moment) -> bool:
        """Whether a copy that counts is at a step to be kept; sets when to look again."""
        if self.every == 1:
            return True
        waits = -moment.t.numpy()[self._episode >= 0] % self.every
        self._next = self._clock + int(np.where(waits == 0, self.every, waits).min(initial=self.every))
        return bool((waits == 0).any())

    def _keep(self, moment: Moment, values: Sequence[Tensor]) -> None:
        """Copies the moment into the buffers."""
        ring = self._ring
        if ring.position >= self._limit:
            self._make_room()
        try:
            tensors = [get(moment) for get in self._before]
        except KeyError as error:
            raise SiteError(f"the site {error} fired at first, but not at every step") from error
        ring.put(0, [*tensors, *values])
        ring.put(self._context_at, [get(moment) for get in self._context])
        if self.activations:
            self.activations.clear()
        if self.frames is not None:
            self.frames.draw(moment.env, self._episode >= 0, moment.t.numpy(), ring.position)

    def _follow_critics(self, moment: Moment) -> list[Tensor]:
        """Values, activations and entering states of the critics that go step by step."""
        begins = None if self._begins is None else torch.from_numpy(self._begins)
        found = []
        for critic in self._followed:
            acting = None if moment.env.spec.simultaneous else moment.acting[critic.selection.group.name]
            found += critic.follow(moment.observation, moment.state, begins, acting)
        return found

    def _make_room(self) -> None:
        """Keeps every step of the episodes that still run."""
        self.settle()
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
        waiting, self._ended = self._ended, []
        for first in (k for k, each in enumerate(waiting) if k == 0 or not each.goes_on_from(waiting[k - 1])):
            following = (k for k in range(first + 1, len(waiting)) if not waiting[k].goes_on_from(waiting[k - 1]))
            self._append_ended(waiting[first : next(following, len(waiting))])

    def _finish(self, copies: np.ndarray, moment: Moment, step: Step) -> None:
        """Puts the episodes of these copies, which end here, to those that wait; neighbours go together."""
        n_steps = moment.t.numpy() + 1
        sums = [
            (moment.returns[s.group.name].numpy() + step.groups[s.group.name].reward.cpu().numpy())[:, list(s.indices)]
            for s in self.contents.selections
        ]
        returns = np.concatenate(sums, axis=1)
        for begun, members in groupby(copies.tolist(), key=lambda copy: int(self._begun[copy])):
            for run in _neighbours(list(members)):
                rows = slice(run[0], run[-1] + 1)
                positions, kept = self._positions(run, begun)
                columns = {
                    "episode": self._episode[rows] + self.first_episode,
                    "length": kept.sum(axis=1) + self._streamed,
                    "n_steps": n_steps[rows],
                    "seed": self._seed[rows],
                }
                self._ended.append(Ended((rows.start, rows.stop), positions, kept, columns, returns[rows]))
                if self._streamed:
                    self.settle()
        if sum(each.kept.size for each in self._ended) >= self._waiting_rows or self.writer.flush_is_due:
            self.settle()
        self.on_episodes(len(copies))
        self.writer.flush_if_due()

    def _append_ended(self, together: Sequence[Ended]) -> None:
        """Appends episodes of the same copies that followed one another, in the order in which they ended."""
        columns = {name: np.concatenate([each.columns[name] for each in together]) for name in together[0].columns}
        lengths = columns["length"]
        starts = self.writer.rows - self._streamed + np.cumsum(lengths) - lengths
        returns = np.concatenate([each.returns for each in together])
        self.writer.add_episodes({**columns, "start": starts}, returns)
        n_new = [len(each.positions) for each in together]
        numbers = np.repeat(np.stack([each.columns["episode"] for each in together], axis=1), n_new, axis=1)
        if len(together) == 1:
            self._append(list(range(*together[0].copies)), together[0].positions, together[0].kept, numbers)
        else:
            self._append_whole(slice(*together[0].copies), [each.positions for each in together], numbers)
        self._streamed = 0

    def _append_whole(self, rows: slice, each: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Appends episodes kept whole: computed together, written `each` after the other, `[position]`."""
        positions = np.concatenate(each)
        columns = self._columns.of(rows, _as_slice(positions % self._ring.capacity), numbers)
        parts = [positions] if rows.stop - rows.start == 1 else each  # one copy's rows lie in this order anyhow
        stop = 0
        for part in parts:
            start, stop, row = stop, stop + len(part), self.writer.rows
            self.writer.append([column[:, start:stop] for column in columns])
            if self.frames is not None:
                for place, copy in enumerate(range(rows.start, rows.stop)):
                    self.frames.append(copy, part, row + place * len(part))

    def _stream(self) -> None:
        """Appends what a lone copy has so far: its rows lie together anyhow, so none need wait for the end."""
        self.settle()
        positions, kept = self._positions([0], int(self._begun[0]))
        numbers = np.full(kept.shape, self._episode[0] + self.first_episode)
        self._append([0], positions, kept, numbers)
        self._streamed += int(kept.sum())
        self._begun[0] = self._ring.position
        self.writer.flush_if_due()

    def _positions(self, run: list[int], begun: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions from `begun` to now, and which of them hold a step to be kept, `[copy, position]`."""
        positions = np.arange(begun, self._ring.position)
        t = self._ring.array(0)[run[0] : run[-1] + 1, positions % self._ring.capacity]
        return positions, t % self.every == 0

    def _append(self, run: list[int], positions: np.ndarray, kept: np.ndarray, numbers: np.ndarray) -> None:
        """Appends the rows of neighbouring copies; numbers: `[copy, position]`, of the episodes."""
        if not len(positions):
            return
        row, slots = self.writer.rows, positions % self._ring.capacity
        if kept.all():
            together = max(1, MOST_ROWS // len(slots))
            for first in range(run[0], run[-1] + 1, together):
                stop = min(first + together, run[-1] + 1)
                self._write(slice(first, stop), slots, numbers[first - run[0] : stop - run[0]])
        else:
            for copy, keeps, number in zip(run, kept, numbers):
                self._write(slice(copy, copy + 1), slots[keeps], number[None, keeps])
        if self.frames is not None:
            for copy, keeps, first in zip(run, kept, row + np.cumsum([0, *kept.sum(axis=1)])):
                self.frames.append(copy, positions[keeps], int(first))

    def _write(self, rows: slice, slots: np.ndarray, numbers: np.ndarray) -> None:
        """Appends the steps at `slots` of these copies, so many at a time that what is computed fits in memory."""
        for start in range(0, len(slots), MOST_ROWS):
            part = slots[start : start + MOST_ROWS]
            self.writer.append(self._columns.of(rows, _as_slice(part), numbers[:, start : start + MOST_ROWS]))


def _as_slice(slots: np.ndarray) -> slice | np.ndarray:
    """Slots that follow one another as a slice, which copies nothing."""
    first, last = int(slots[0]), int(slots[-1])
    return slice(first, last + 1) if last - first == len(slots) - 1 else slots


def _neighbours(copies: list[int]) -> list[list[int]]:
    """Ascending copies cut into runs without gaps: [1, 2, 5] -> [1, 2], [5]."""
    return [[copy for _, copy in run] for _, run in groupby(enumerate(copies), key=lambda pair: pair[1] - pair[0])]
