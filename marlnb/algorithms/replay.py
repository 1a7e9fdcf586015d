"""ReplayBuffer: the latest frames of experience in plain tensors, sampled by index.

Rows form a ring over time, with all environments of a time step next to each other. So the next observation of a row
is the row of the following time step, and is not stored a second time: that halves the memory. Where the next
observation is a different one (the last of an episode, the one at an agent's next turn), it is stored in an overflow
table, and the row holds its number there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.algorithms.rollout import Key, Rollout
from marlnb.errors import CheckpointError, ShapeError
from marlnb.specs import GroupSpec

Sample = dict[Key, Tensor]
MIN_OVERFLOW_ROWS = 64


class ReplayBuffer:
    """The latest `capacity` frames.

    Args:
        capacity: frames; rounded down to whole time steps of all environments, and for sequences up to whole sequences.
        group: whose rewards, ends and recurrent states are stored.
        reads: groups whose observations, actions, action masks and terminations are stored, the learner's own group
            first.
        sequence_length: steps of a sample. Sequences start at its multiples, so the recurrent state is stored only
            there.
        n_steps: whose discounted rewards are summed in a sample, and after which its next observation is.
        gamma: discount per step of that sum.
        seed: of the sampling.
        device: of the rollouts, and of the buffer.
    """

    def __init__(
        self,
        capacity: int,
        *,
        group: GroupSpec,
        reads: tuple[str, ...],
        sequence_length: int = 1,
        n_steps: int = 1,
        gamma: float = 1.0,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity, self.group, self.reads, self.sequence_length = capacity, group, reads, sequence_length
        self.n_steps, self.gamma = n_steps, gamma
        self._device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)
        self._n_envs = self._n_slots = self._size = 0
        self._written = 0  # time steps since the first rollout; step t is in slot t % n_slots
        self._rows: Sample = {}  # [slot * env, ...]
        self._next_fields: tuple[Key, ...] = ()  # of which the next value is sampled too
        self._recurrent: Tensor | None = None  # [sequence slot * env, agent, layer, unit]
        self._overflow = torch.empty(0, dtype=torch.int64)  # [slot * env]: number in the overflow table, or -1
        self._overflow_rows: Sample = {}
        self._overflow_first = self._overflow_next = 0  # numbers in use; number k is in row k % length

    def __len__(self) -> int:
        """Frames in the buffer."""
        return (self._written - self._oldest) * self._n_envs

    @property
    def n_samples(self) -> int:
        """Frames, or whole sequences, that can be sampled."""
        first, end = self._sequences
        return max(0, end - first) * self._n_envs

    @property
    def size_bytes(self) -> int:
        """Memory of the whole ring."""
        tensors = [*self._rows.values(), *self._overflow_rows.values(), self._overflow]
        tensors += [] if self._recurrent is None else [self._recurrent]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @torch.no_grad()
    def add(self, rollout: Rollout) -> None:
        """Adds a rollout `[env, time]`. It is taken to continue the previous one.

        Raises:
            ShapeError: it is longer than the buffer, or has another number of environments than those before it.
        """
        n_envs, n_steps = rollout.batch_size
        now, after = self._fields(rollout)
        if not self._rows:
            recurrent = rollout.get((self.group.name, "recurrent"), None) if self.sequence_length > 1 else None
            self._allocate(now, tuple(after), n_envs, recurrent)
        if n_envs != self._n_envs or n_steps >= self._n_slots:
            raise ShapeError(
                f"a rollout of {n_envs} environments and {n_steps} steps; the replay buffer takes {self._n_envs} "
                f"environments and at most {self._n_slots - 1} steps"
            )
        # The slot after the newest step holds that step's next observation. This rollout overwrites it.
        self._move_next_to_overflow({key: now[key][:, 0] for key in after})
        slots = (torch.arange(n_steps + 1, device=self._device) + self._written) % self._n_slots
        self._free_overflow(slots)
        start = self._written % self._n_slots
        n_before_end = min(n_steps, self._n_slots - start)  # the rest goes to the beginning of the ring
        for key, value in now.items():
            ring, by_time = self._at_slots(self._rows[key]), value.transpose(0, 1)
            ring[start : start + n_before_end].copy_(by_time[:n_before_end])
            if n_before_end < n_steps:
                ring[: n_steps - n_before_end].copy_(by_time[n_before_end:])
        self._store_other_next(slots[:-2], {key: value[:, :-1] for key, value in after.items()}, now)
        for key, value in after.items():
            self._at_slots(self._rows[key])[slots[-1]] = value[:, -1]
        self._store_recurrent(rollout, n_steps)
        self._written += n_steps

    @torch.no_grad()
    def sample(self, n: int) -> Sample:
        """n frames `[n, ...]`, or sequences `[n, time, ...]`, drawn uniformly with replacement.

        Returns:
            keys as in the rollout. For each group g that is read: `(g, "observation" | "action")`, `("next", g,
            "observation")`, `("next", g, "terminated")` `[n, agent, 1]` and, if there is one, `(g, "action_mask")` and
            the next one. For the learner's group also `"acting"`, `"alive"` and the next one, and `("next", g, "reward"
            | "done")` `[n, agent, 1]`. `"state"` and the next one, if there is one. For sequences `"is_init"` `[n,
            time, 1]` and, if there is one, `(g, "recurrent")` `[n, agent, layer, unit]`, the state before the first
            step, and in turn-based games `(g, "acted")` (`own_turns`).
        Raises:
            ShapeError: the buffer holds nothing to sample yet.
        """
        length, n_envs = self.sequence_length, self._n_envs
        if not self.n_samples:
            raise ShapeError(f"nothing to sample: the replay buffer holds {len(self)} frames, sequences have {length}")
        drawn = torch.randint(self.n_samples, (n,), generator=self._generator).to(self._device)
        first = self._sequences[0]
        if length == 1:
            rows = (first * n_envs + drawn) % self._size
            return self._read(rows) if self.n_steps == 1 else self._read_steps(rows, len(self) - 1 - drawn)
        index, env_index = first + drawn.div(n_envs, rounding_mode="floor"), drawn % n_envs
        steps = torch.arange(length, device=self._device)
        rows = ((index[:, None] * length + steps) * n_envs + env_index[:, None]) % self._size
        sample = {key: value.unflatten(0, rows.shape) for key, value in self._read(rows.flatten()).items()}
        if self._recurrent is not None:
            slots = (index * n_envs + env_index) % len(self._recurrent)
            sample[self.group.name, "recurrent"] = self._recurrent.index_select(0, slots)
        return sample

    def field(self, key: Key) -> Tensor:
        """One field of every frame in the buffer, `[frame, ...]`, in no particular order.

        Raises:
            ShapeError: the buffer is empty.
        """
        if not len(self):
            raise ShapeError(f"no {key!r}: the replay buffer is empty")
        return self._rows[key][: min(self._written, self._n_slots) * self._n_envs]

    @property
    def _terminated(self) -> list[Key]:
        """Who terminated, of every group that is read: `next_observations` needs it."""
        return [("next", name, "terminated") for name in self.reads]

    @property
    def _oldest(self) -> int:
        """The oldest time step in the buffer. One slot, after the newest step, holds only a next observation."""
        return max(0, self._written + 1 - self._n_slots)

    @property
    def _sequences(self) -> tuple[int, int]:
        """The whole sequences in the buffer: the first one and the one after the last, counted from the beginning."""
        return -(-self._oldest // self.sequence_length), self._written // self.sequence_length

    def _fields(self, rollout: Rollout) -> tuple[Sample, Sample]:
        """What is stored of each time step, and what was next of it, `[env, time, ...]`."""
        group = self.group.name
        masked = [name for name in self.reads if rollout.get((name, "action_mask"), None) is not None]
        both: list[Key] = [*((name, "observation") for name in self.reads), (group, "alive")]
        both += [(name, "action_mask") for name in masked]
        both += ["state"] if rollout.get("state", None) is not None else []
        single: list[Key] = [*((name, "action") for name in self.reads), (group, "acting")]
        single += [("next", group, "reward"), ("next", group, "done"), *self._terminated]
        if self.sequence_length > 1:
            single += ["is_init"] if rollout.get((group, "acted"), None) is None else ["is_init", (group, "acted")]
        now = {key: rollout[key] for key in (*both, *single)}
        return now, {key: rollout[next_key(key)] for key in both}

    def _allocate(self, now: Sample, next_fields: tuple[Key, ...], n_envs: int, recurrent: Tensor | None) -> None:
        length = self.sequence_length
        self._n_envs, self._n_slots = n_envs, -(-(self.capacity // n_envs + 1) // length) * length
        self._size = self._n_slots * n_envs
        self._next_fields = next_fields

        def rows(value: Tensor, n: int) -> Tensor:
            return _zeros((n, *value.shape[2:]), value.dtype, self._device)

        self._rows = {key: rows(value, self._size) for key, value in now.items()}
        self._overflow = torch.full((self._size,), -1, dtype=torch.int64, device=self._device)
        self._overflow_rows = {key: rows(now[key], MIN_OVERFLOW_ROWS) for key in next_fields}
        self._recurrent = None if recurrent is None else rows(recurrent, self._size // length)

    def _at_slots(self, rows: Tensor) -> Tensor:
        """Rows `[slot * env, ...]` as `[slot, env, ...]`."""
        return rows.view(self._n_slots, self._n_envs, *rows.shape[1:])

    def _move_next_to_overflow(self, first: Sample) -> None:
        """Saves the newest step's next observation where it differs from the first observation of this rollout."""
        if not self._written:
            return
        head, last = self._written % self._n_slots, (self._written - 1) % self._n_slots
        next_of_last = {key: self._at_slots(self._rows[key])[head] for key in first}
        envs = _differs(next_of_last, first, 1).nonzero().squeeze(-1)
        numbers = self._append_overflow({key: value[envs] for key, value in next_of_last.items()})
        self._at_slots(self._overflow)[last, envs] = numbers

    def _store_other_next(self, slots: Tensor, after: Sample, now: Sample) -> None:
        """Stores next observations `[env, time - 1]` in the overflow table where they are not the following row."""
        differs = _differs(after, {key: now[key][:, 1:] for key in after}, 2)
        time, env_index = differs.t().nonzero().unbind(-1)  # in order of time, as `_free_overflow` needs it
        numbers = self._append_overflow({key: value[env_index, time] for key, value in after.items()})
        self._at_slots(self._overflow)[slots[time], env_index] = numbers

    def _free_overflow(self, slots: Tensor) -> None:
        """Frees the overflow rows of steps that are about to be overwritten: the oldest steps, so the first rows."""
        overflow = self._at_slots(self._overflow)
        self._overflow_first += int((overflow[slots] >= 0).sum())
        overflow[slots] = -1

    def _append_overflow(self, rows: Sample) -> Tensor:
        """Adds rows to the overflow table, in order of time; returns their numbers."""
        count = len(next(iter(rows.values())))
        live = torch.arange(self._overflow_first, self._overflow_next, device=self._device)
        length = len(next(iter(self._overflow_rows.values())))
        if len(live) + count > length:
            new_length = max(2 * length, len(live) + count)
            for key, old in self._overflow_rows.items():
                self._overflow_rows[key] = old.new_zeros(new_length, *old.shape[1:])
                self._overflow_rows[key][live % new_length] = old[live % length]
            length = new_length
        numbers = torch.arange(self._overflow_next, self._overflow_next + count, device=self._device)
        for key, value in rows.items():
            self._overflow_rows[key][numbers % length] = value
        self._overflow_next += count
        return numbers

    def _store_recurrent(self, rollout: Rollout, n_steps: int) -> None:
        """Stores the recurrent states at the steps of this rollout at which a sequence starts."""
        if self._recurrent is None:
            return
        starts_here = range(-self._written % self.sequence_length, n_steps, self.sequence_length)  # may be empty
        starts = torch.tensor(starts_here, dtype=torch.int64).to(self._device)
        slots = (starts + self._written) % self._n_slots // self.sequence_length
        states = rollout[self.group.name, "recurrent"][:, starts].transpose(0, 1)
        self._recurrent.view(-1, self._n_envs, *self._recurrent.shape[1:])[slots] = states

    def _read(self, rows: Tensor) -> Sample:
        """The frames of these rows, with what came next."""
        sample = {key: value.index_select(0, rows) for key, value in self._rows.items()}
        next_rows = (rows + self._n_envs) % self._size
        overflow = self._overflow.index_select(0, rows)
        in_overflow = (overflow >= 0).nonzero().squeeze(-1)
        numbers = overflow[in_overflow]
        for key in self._next_fields:
            value, table = self._rows[key].index_select(0, next_rows), self._overflow_rows[key]
            sample[next_key(key)] = value.index_copy_(0, in_overflow, table.index_select(0, numbers % len(table)))
        return sample

    def _read_steps(self, rows: Tensor, n_later: Tensor) -> Sample:
        """Frames with what came up to `n_steps` later; `n_later` `[n]` rows of the buffer are later than each."""
        reward_key, done_key = ("next", self.group.name, "reward"), ("next", self.group.name, "done")
        reward = self._rows[reward_key].index_select(0, rows)
        last, steps = rows, torch.ones_like(rows)
        for k in range(1, self.n_steps):
            ended = self._rows[done_key].index_select(0, last).flatten(1).any(1) | (self._overflow[last] >= 0)
            continues = (steps == k) & ~ended & (n_later >= k * self._n_envs)
            last = torch.where(continues, (last + self._n_envs) % self._size, last)
            more = self._rows[reward_key].index_select(0, last) * continues[:, None, None]
            reward, steps = reward.add(more, alpha=self.gamma**k), steps + continues
        now = {key: value.index_select(0, rows) for key, value in self._rows.items() if key[0] != "next"}
        return self._read(last) | now | {reward_key: reward, "steps": steps[:, None]}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers; only the rows that are filled."""
        n_filled = min(self._written + 1, self._n_slots) * self._n_envs if self._rows else 0
        live = torch.arange(self._overflow_first, self._overflow_next, device=self._device)
        return {
            "n_envs": self._n_envs,
            "written": self._written,
            "overflow_first": self._overflow_first,
            "generator": self._generator.get_state(),
            "rows": {_name(key): rows[:n_filled].clone() for key, rows in self._rows.items()},
            "overflow": self._overflow[:n_filled].clone(),
            "overflow_rows": {_name(key): rows[live % len(rows)] for key, rows in self._overflow_rows.items()},
            "recurrent": None if self._recurrent is None else self._recurrent.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError if the state belongs to a buffer of another size, or lacks a field."""
        self._generator.set_state(state["generator"].cpu())
        self._rows = {}
        self._written = 0
        if not state["rows"]:
            return
        if missing := [name for name in map(_name, self._terminated) if name not in state["rows"]]:
            raise CheckpointError(
                f"the checkpoint's replay buffer lacks {', '.join(missing)}: it was saved by an earlier version of "
                "marlnb, whose critics did not learn that agents of other groups died. Start the training again"
            )
        rows = {_key(name): value.to(self._device) for name, value in state["rows"].items()}
        overflow_rows = {_key(name): value.to(self._device) for name, value in state["overflow_rows"].items()}
        recurrent = state["recurrent"]
        n_envs, written = int(state["n_envs"]), int(state["written"])
        examples = {key: value[None] for key, value in rows.items()}
        self._allocate(examples, tuple(overflow_rows), n_envs, None if recurrent is None else recurrent[None])
        n_filled = min(written + 1, self._n_slots) * n_envs
        if any(len(value) != n_filled for value in rows.values()):
            n_saved = max(len(value) for value in rows.values())
            raise CheckpointError(f"the checkpoint's replay buffer has {n_saved} rows; this capacity needs {n_filled}")
        for key, value in rows.items():
            self._rows[key][:n_filled] = value
        self._overflow[:n_filled] = state["overflow"].to(self._device)
        if self._recurrent is not None:
            self._recurrent.copy_(recurrent)
        self._written = written
        self._overflow_first = self._overflow_next = int(state["overflow_first"])
        self._append_overflow(overflow_rows)


def next_key(key: Key) -> Key:
    """The key of a field's value at the next step."""
    return ("next", key) if isinstance(key, str) else ("next", *key)


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take memory only once they are written: torch's own write all of it at once."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(shape, torch.empty(0, dtype=dtype).numpy().dtype))


def _differs(left: Sample, right: Sample, n_axes: int) -> Tensor:
    """Where any number of any field differs, `[env]` or `[env, time]`: the first `n_axes` axes."""
    differences = [(value != right[key]).flatten(n_axes) for key, value in left.items()]
    # counting is faster than `any` over the last axis
    return torch.stack([difference.sum(-1, dtype=torch.int32) for difference in differences]).sum(0) > 0


def _name(key: Key) -> str:
    return key if isinstance(key, str) else "/".join(key)


def _key(name: str) -> Key:
    first, *rest = name.split("/")
    return (first, *rest) if rest else first
