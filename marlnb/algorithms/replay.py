"""Replay: the last frames of experience in plain tensors, sampled by index.

Rows lie in a ring over time, all copies of a moment together, so that what was seen next is the row of the moment that
follows, and is not stored again. Where it is another (an episode's last observation, a next turn), it lies aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.errors import CheckpointError, ShapeError
from marlnb.specs import GroupSpec

Key = str | tuple[str, ...]
Sample = dict[Key, Tensor]
LEAST_ASIDE = 64


class Replay:
    """The last `capacity` frames.

    Args:
        capacity: frames; rounded down to whole moments of all copies, and for sequences up to whole sequences.
        group: whose rewards, ends and recurrent states are kept.
        reads: groups whose observations, actions and action masks are kept, the own one first.
        sequence_length: steps of a sample; sequences begin at its multiples, so that only there the recurrent state
            is kept.
        seed: of the samples drawn.
        device: where rollouts are, and the memory with them.
    """

    def __init__(
        self,
        capacity: int,
        *,
        group: GroupSpec,
        reads: tuple[str, ...],
        sequence_length: int = 1,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity, self.group, self.reads, self.chunk = capacity, group, reads, sequence_length
        self._device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)
        self._n_envs = self._n_slots = self._size = 0
        self._written = 0  # moments since the beginning
        self._rows: Sample = {}  # [slot * copy, ...]; of _following also the moment that comes next
        self._following: tuple[Key, ...] = ()
        self._recurrent: Tensor | None = None  # [sequence's slot * copy, agent, layer, unit]
        self._aside = torch.empty(0, dtype=torch.int64)  # [slot * copy]: number of what lies aside, else -1
        self._aside_rows: Sample = {}
        self._aside_first = self._aside_next = 0  # numbers in use; number k lies in row k % length

    def __len__(self) -> int:
        """Frames held."""
        return (self._written - self._oldest) * self._n_envs

    @property
    def n_samples(self) -> int:
        """Frames, or whole sequences, that can be sampled."""
        begins, ends = self._chunks
        return max(0, ends - begins) * self._n_envs

    @property
    def size_bytes(self) -> int:
        """Memory that a full ring takes."""
        tensors = [*self._rows.values(), *self._aside_rows.values(), self._aside]
        tensors += [] if self._recurrent is None else [self._recurrent]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @torch.no_grad()
    def add(self, rollout: TensorDictBase) -> None:
        """Remembers a rollout `[env, time]`, which is taken to follow the last one.

        Raises:
            ShapeError: it is longer than the memory, or of another number of copies than those before it.
        """
        n_envs, n_steps = rollout.batch_size
        now, after = self._fields(rollout)
        if not self._rows:
            self._allocate(now, tuple(after), n_envs, _recurrent(rollout, self.group.name) if self.chunk > 1 else None)
        if n_envs != self._n_envs or n_steps >= self._n_slots:
            raise ShapeError(
                f"a rollout of {n_envs} copies and {n_steps} steps; the memory takes {self._n_envs} copies "
                f"and at most {self._n_slots - 1} steps"
            )
        self._keep_what_was_next({key: now[key][:, 0] for key in after})
        slots = (torch.arange(n_steps + 1, device=self._device) + self._written) % self._n_slots
        self._forget(slots)
        begin = self._written % self._n_slots
        before_end = min(n_steps, self._n_slots - begin)  # the rest goes to the ring's beginning
        for key, value in now.items():
            ring, moments = self._at_slots(self._rows[key]), value.transpose(0, 1)
            ring[begin : begin + before_end].copy_(moments[:before_end])
            if before_end < n_steps:
                ring[: n_steps - before_end].copy_(moments[before_end:])
        self._set_aside(slots[:-2], {key: value[:, :-1] for key, value in after.items()}, now)
        for key, value in after.items():
            self._at_slots(self._rows[key])[slots[-1]] = value[:, -1]
        self._keep_recurrent(rollout, n_steps)
        self._written += n_steps

    @torch.no_grad()
    def sample(self, n: int) -> Sample:
        """n frames `[n, ...]`, or sequences `[n, time, ...]`, drawn evenly with replacement.

        Returns:
            keys as in the rollout: for each group g that is read `(g, "observation" | "action")`, `("next", g,
            "observation")` and, if there is one, `(g, "action_mask")` and the next; of the own group `"acting"`,
            `"alive"` (and the next), and `("next", own, "reward" | "terminated" | "done")` `[n, agent, 1]`;
            `"state"` and the next, if there is one; for sequences `"is_init"` `[n, time, 1]` and, if there is one,
            `(own, "recurrent")` `[n, agent, layer, unit]`, the state that enters the first step.
        Raises:
            ShapeError: there is nothing to sample yet.
        """
        if not self.n_samples:
            raise ShapeError(f"nothing to sample: {len(self)} frames held, sequences of {self.chunk} steps")
        chosen = torch.randint(self.n_samples, (n,), generator=self._generator).to(self._device)
        first = self._chunks[0]
        if self.chunk == 1:
            return self._read((first * self._n_envs + chosen) % self._size)
        index, copy = first + chosen.div(self._n_envs, rounding_mode="floor"), chosen % self._n_envs
        steps = torch.arange(self.chunk, device=self._device)
        rows = ((index[:, None] * self.chunk + steps) * self._n_envs + copy[:, None]) % self._size
        sample = {key: value.unflatten(0, rows.shape) for key, value in self._read(rows.flatten()).items()}
        if self._recurrent is not None:
            held = (index * self._n_envs + copy) % len(self._recurrent)
            sample[self.group.name, "recurrent"] = self._recurrent.index_select(0, held)
        return sample

    def held(self, key: Key) -> Tensor:
        """One field of every frame held, `[frame, ...]`, in no order; not of what was seen next.

        Raises:
            ShapeError: nothing is held.
        """
        if not len(self):
            raise ShapeError(f"no {key!r}: the memory is empty")
        return self._rows[key][: min(self._written, self._n_slots) * self._n_envs]

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers; only what is filled."""
        filled = min(self._written + 1, self._n_slots) * self._n_envs if self._rows else 0
        live = torch.arange(self._aside_first, self._aside_next, device=self._device)
        return {
            "n_envs": self._n_envs,
            "written": self._written,
            "aside_first": self._aside_first,
            "generator": self._generator.get_state(),
            "rows": {_name(key): rows[:filled].clone() for key, rows in self._rows.items()},
            "aside": self._aside[:filled].clone(),
            "aside_rows": {_name(key): rows[live % len(rows)] for key, rows in self._aside_rows.items()},
            "recurrent": None if self._recurrent is None else self._recurrent.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError where the state is of a memory of another size."""
        self._generator.set_state(state["generator"].cpu())
        self._rows = {}
        self._written = 0
        if not state["rows"]:
            return
        rows = {_key(name): value.to(self._device) for name, value in state["rows"].items()}
        aside = {_key(name): value.to(self._device) for name, value in state["aside_rows"].items()}
        recurrent = state["recurrent"]
        n_envs, written = int(state["n_envs"]), int(state["written"])
        self._allocate(
            {key: value[None] for key, value in rows.items()},
            tuple(aside),
            n_envs,
            None if recurrent is None else recurrent[None],
        )
        filled = min(written + 1, self._n_slots) * n_envs
        if any(len(value) != filled for value in rows.values()):
            found = max(len(value) for value in rows.values())
            raise CheckpointError(f"a replay memory of {found} rows; with this capacity it would have {filled}")
        for key, value in rows.items():
            self._rows[key][:filled] = value
        self._aside[:filled] = state["aside"].to(self._device)
        if self._recurrent is not None:
            self._recurrent.copy_(recurrent)
        self._written = written
        self._aside_first = self._aside_next = int(state["aside_first"])
        self._append(aside)

    @property
    def _oldest(self) -> int:
        """The first moment still held; the slot after the newest holds what was seen next."""
        return max(0, self._written + 1 - self._n_slots)

    @property
    def _chunks(self) -> tuple[int, int]:
        """Whole sequences held, from and to, counted from the beginning."""
        return -(-self._oldest // self.chunk), self._written // self.chunk

    def _fields(self, rollout: TensorDictBase) -> tuple[Sample, Sample]:
        """What is kept of each moment, and what was next of it, `[env, time, ...]`."""
        own = self.group.name
        masked = [name for name in self.reads if rollout.get((name, "action_mask"), None) is not None]
        both: list[Key] = [*((name, "observation") for name in self.reads), (own, "alive")]
        both += [(name, "action_mask") for name in masked]
        both += ["state"] if rollout.get("state", None) is not None else []
        single: list[Key] = [*((name, "action") for name in self.reads), (own, "acting")]
        single += [("next", own, what) for what in ("reward", "terminated", "done")]
        single += ["is_init"] if self.chunk > 1 else []
        now = {key: rollout[key] for key in (*both, *single)}
        return now, {key: rollout[_next(key)] for key in both}

    def _allocate(self, now: Sample, following: tuple[Key, ...], n_envs: int, recurrent: Tensor | None) -> None:
        moments = self.capacity // n_envs
        self._n_envs, self._n_slots = n_envs, -(-(moments + 1) // self.chunk) * self.chunk
        self._size = self._n_slots * n_envs
        self._following = following

        def rows(value: Tensor, n: int) -> Tensor:
            return torch.zeros(n, *value.shape[2:], dtype=value.dtype, device=self._device)

        self._rows = {key: rows(value, self._size) for key, value in now.items()}
        self._aside = torch.full((self._size,), -1, dtype=torch.int64, device=self._device)
        self._aside_rows = {key: rows(now[key], LEAST_ASIDE) for key in following}
        self._recurrent = None if recurrent is None else rows(recurrent, self._size // self.chunk)

    def _at_slots(self, rows: Tensor) -> Tensor:
        return rows.view(self._n_slots, self._n_envs, *rows.shape[1:])

    def _forget(self, slots: Tensor) -> None:
        """Frees what lies aside for moments about to be overwritten: they are the oldest, so it was the first put."""
        aside = self._at_slots(self._aside)
        self._aside_first += int((aside[slots] >= 0).sum())
        aside[slots] = -1

    def _keep_what_was_next(self, now: Sample) -> None:
        """Puts aside what the newest moment saw next, for the copies in which this rollout begins with another."""
        if not self._written:
            return
        head, last = self._written % self._n_slots, (self._written - 1) % self._n_slots
        was = {key: self._at_slots(self._rows[key])[head] for key in now}
        copies = _differs(was, now, 1).nonzero().squeeze(-1)
        self._at_slots(self._aside)[last, copies] = self._append({key: value[copies] for key, value in was.items()})

    def _set_aside(self, slots: Tensor, after: Sample, now: Sample) -> None:
        """Puts aside what was seen next, `[env, time - 1]`, where the moment that follows is another."""
        differs = _differs(after, {key: now[key][:, 1:] for key in after}, 2)
        time, copy = differs.t().nonzero().unbind(-1)
        numbers = self._append({key: value[copy, time] for key, value in after.items()})
        self._at_slots(self._aside)[slots[time], copy] = numbers

    def _append(self, rows: Sample) -> Tensor:
        """Lays rows aside, in the order of time; returns their numbers."""
        count = len(next(iter(rows.values())))
        live = torch.arange(self._aside_first, self._aside_next, device=self._device)
        length = len(next(iter(self._aside_rows.values())))
        if len(live) + count > length:
            longer = max(2 * length, len(live) + count)
            for key, old in self._aside_rows.items():
                self._aside_rows[key] = old.new_zeros(longer, *old.shape[1:])
                self._aside_rows[key][live % longer] = old[live % length]
            length = longer
        numbers = torch.arange(self._aside_next, self._aside_next + count, device=self._device)
        for key, value in rows.items():
            self._aside_rows[key][numbers % length] = value
        self._aside_next += count
        return numbers

    def _keep_recurrent(self, rollout: TensorDictBase, n_steps: int) -> None:
        if self._recurrent is None:
            return
        begins = torch.tensor(range(-self._written % self.chunk, n_steps, self.chunk), dtype=torch.int64).to(
            self._device
        )
        slots = (begins + self._written) % self._n_slots // self.chunk
        states = rollout[self.group.name, "recurrent"][:, begins].transpose(0, 1)
        self._recurrent.view(-1, self._n_envs, *self._recurrent.shape[1:])[slots] = states

    def _read(self, rows: Tensor) -> Sample:
        sample = {key: value.index_select(0, rows) for key, value in self._rows.items()}
        after = (rows + self._n_envs) % self._size
        aside = self._aside.index_select(0, rows)
        there = (aside >= 0).nonzero().squeeze(-1)
        numbers = aside[there]
        for key in self._following:
            value, other = self._rows[key].index_select(0, after), self._aside_rows[key]
            sample[_next(key)] = value.index_copy_(0, there, other.index_select(0, numbers % len(other)))
        return sample


def seen_together(sample: Sample, reads: tuple[str, ...]) -> dict[str, Tensor]:
    """What the agents of the groups `reads` see next, as one who judges them together reads it, by group.

    An agent that has terminated shows nothing, as at the moments that follow: its last observation is its own business,
    and a judge that has never seen it beside the living is not to be bootstrapped from it.
    """
    found = {}
    for name in reads:
        seen, terminated = sample["next", name, "observation"], sample.get(("next", name, "terminated"))
        if terminated is not None:
            gone = terminated.squeeze(-1)
            seen = seen.masked_fill(gone.reshape(*gone.shape, *(1,) * (seen.ndim - gone.ndim)), 0)
        found[name] = seen
    return found


def _recurrent(rollout: TensorDictBase, own: str) -> Tensor | None:
    found: Tensor | None = rollout.get((own, "recurrent"), None)
    return found


def _differs(left: Sample, right: Sample, axes: int) -> Tensor:
    """Where any number of any field differs, `[env]` or `[env, time]`: the first `axes` axes."""
    found = [(value != right[key]).flatten(axes) for key, value in left.items()]
    return torch.stack([each.sum(-1, dtype=torch.int32) for each in found]).sum(0) > 0  # faster than `any`


def _next(key: Key) -> Key:
    return ("next", key) if isinstance(key, str) else ("next", *key)


def _name(key: Key) -> str:
    return key if isinstance(key, str) else "/".join(key)


def _key(name: str) -> Key:
    parts = tuple(name.split("/"))
    return parts[0] if len(parts) == 1 else parts
