"""EpisodeRecorder: watches `play` and hands whole episodes to the file.

In a step it only copies into buffers that exist already, and only what cannot be told later. When an episode ends it
runs actors and critics over its rows for what they had inside, asks for the labels, and appends the rows; copies whose
episodes ran side by side go together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import SiteError
from marlnb.recording.built_in_labels import MOMENT
from marlnb.recording.contents import Contents
from marlnb.recording.frames import FrameStore
from marlnb.recording.inflight import InFlight
from marlnb.recording.layout import BFLOAT16, Field
from marlnb.recording.writer import RowWriter
from marlnb.training.episodes import Moment

FIRST_CAPACITY = 256
STREAM_ROWS = 128
MOST_ROWS = 16384
Slots = slice | np.ndarray


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
        paths = [item.path for item in contents.fields]
        self._order = [paths.index(item.path) for item in fields or contents.fields]
        buffered = contents.buffered
        capacity = -(-env.spec.max_steps // every) if env.spec.max_steps else FIRST_CAPACITY
        self._ring = InFlight(buffered, env.n_envs, capacity, Path(writer.path).parent)
        self._index = {item.path: index for index, item in enumerate(buffered)}
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
        counted = self._episode >= 0
        oldest = int(self._begun[counted].min())
        if self._ring.position - oldest >= self._ring.capacity:
            self._ring.grow(oldest)
        self._limit = oldest + self._ring.capacity

    def _finish(self, copies: np.ndarray, moment: Moment, step: Step) -> None:
        """Appends the episodes of these copies, which end here; neighbours that began together go together."""
        n_steps = moment.t.numpy() + 1
        returns = [
            moment.returns[name].numpy() + step.groups[name].reward.cpu().numpy()
            for name in (selection.group.name for selection in self.contents.selections)
        ]
        for begun, members in groupby(copies.tolist(), key=lambda copy: int(self._begun[copy])):
            for run in _neighbours(list(members)):
                positions, kept = self._positions(run, begun)
                self._enter(run, kept.sum(axis=1), n_steps, returns)
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
        row, slots = self.writer.rows, positions % self._ring.capacity
        if kept.all():
            together = max(1, MOST_ROWS // len(slots))
            for first in range(run[0], run[-1] + 1, together):
                self._write(slice(first, min(first + together, run[-1] + 1)), slots)
        else:
            for copy, keeps in zip(run, kept):
                self._write(slice(copy, copy + 1), slots[keeps])
        if self.frames is not None:
            for copy, keeps, first in zip(run, kept, row + np.cumsum([0, *kept.sum(axis=1)])):
                self.frames.append(copy, positions[keeps], int(first))

    def _write(self, rows: slice, slots: np.ndarray) -> None:
        """Appends the steps at `slots` of these copies, so many at a time that what is computed fits in memory."""
        for start in range(0, len(slots), MOST_ROWS):
            part = slots[start : start + MOST_ROWS]
            self.writer.append(self._columns(rows, _as_slice(part)))

    def _columns(self, rows: slice, slots: Slots) -> list[np.ndarray]:
        """Every field of these copies and slots, `[copy, slot, ...]`, as the bytes that are stored."""
        shape = self._ring.array(0)[rows, slots].shape[:2]
        fields = self.contents.fields
        found = [self._stored(index, fields[index], rows, slots) for index in range(self._critics_at)]
        at = self._critics_at
        for critic in self.contents.critics:
            if critic.by_step:
                found += [self._ring.array(at + k)[rows, slots] for k in range(len(critic.fields))]
                at += len(critic.fields)
            else:
                state = self._rows_of("steps/state", rows, slots) if "steps/state" in self._index else None
                seen = {
                    name: self._rows_of(each.observation, rows, slots) for name, each in self.contents.inputs.items()
                }
                found += _as_stored(critic.evaluate(seen, state), critic.fields, shape)
        for actor in self.contents.actors:
            inputs = self.contents.inputs[actor.selection.group.name]
            entering = None if inputs.recurrent is None else self._rows_of(inputs.recurrent, rows, slots)
            found += _as_stored(
                actor.evaluate(self._rows_of(inputs.observation, rows, slots), entering), actor.fields, shape
            )
        if self.contents.labels is not None:
            told = self.contents.labels.tell(self._rows_of(MOMENT, rows, slots))
            found += _as_stored(told, self.contents.labels.fields, shape)
        found += [self._ring.array(index)[rows, slots] for index in range(self._after_at, self._context_at)]
        env_id = np.arange(rows.start, rows.stop)[:, None]
        number = self._episode[rows][:, None] + self.first_episode
        found += [np.broadcast_to(env_id, shape), np.broadcast_to(number, shape)]
        return [found[index] for index in self._order]

    def _stored(self, index: int, item: Field, rows: slice, slots: Slots) -> np.ndarray:
        if self._ring.fields[index].dtype == item.dtype:
            return self._ring.array(index)[rows, slots]
        return _bytes(self._ring.tensor(index)[rows, slots], item)

    def _rows_of(self, path: str, rows: slice, slots: Slots) -> Tensor:
        """A buffered field, `[row, ...]`."""
        return self._ring.tensor(self._index[path])[rows, slots].flatten(0, 1)

    def _enter(self, run: list[int], lengths: np.ndarray, n_steps: np.ndarray, returns: Sequence[np.ndarray]) -> None:
        """Enters the episodes of neighbouring copies, whose rows come next."""
        copies, lengths = slice(run[0], run[-1] + 1), lengths + self._streamed
        columns = {
            "episode": self._episode[copies] + self.first_episode,
            "start": self.writer.rows - self._streamed + np.cumsum(lengths) - lengths,
            "length": lengths,
            "n_steps": n_steps[copies],
            "seed": self._seed[copies],
        }
        recorded = [sums[copies, list(s.indices)] for sums, s in zip(returns, self.contents.selections)]
        self.writer.add_episodes(columns, np.concatenate(recorded, axis=1))
        self._streamed = 0


def _as_stored(outputs: Sequence[Tensor], fields: Sequence[Field], shape: tuple[int, ...]) -> list[np.ndarray]:
    """Tensors `[row, ...]` as `[copy, slot, ...]`, the bytes of their fields."""
    return [_bytes(output.reshape(*shape, *item.shape), item) for output, item in zip(outputs, fields, strict=True)]


def _bytes(tensor: Tensor, item: Field) -> np.ndarray:
    stored = tensor.detach().to("cpu", item.torch_dtype)
    return stored.view(torch.int16).numpy() if item.dtype == BFLOAT16 else stored.numpy()


def _as_slice(slots: np.ndarray) -> Slots:
    """Slots that follow one another as a slice, which copies nothing."""
    first, last = int(slots[0]), int(slots[-1])
    return slice(first, last + 1) if last - first == len(slots) - 1 else slots


def _neighbours(copies: list[int]) -> list[list[int]]:
    """Ascending copies cut into runs without gaps: [1, 2, 5] -> [1, 2], [5]."""
    return [[copy for _, copy in run] for _, run in groupby(enumerate(copies), key=lambda pair: pair[1] - pair[0])]
