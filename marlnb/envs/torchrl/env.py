"""The VectorEnv over torchrl environments: one that is batched itself, or one for each copy."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from marlnb.envs.action_validation import ActionValidator
from marlnb.envs.constructor_errors import construct
from marlnb.envs.rng_streams import RngStreams
from marlnb.envs.torchrl.layout import PLAYER, GroupLayout, Layout, layout_of
from marlnb.envs.vector import GroupStep, Step, VectorEnv, allocate_step, episode_seeds
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import SEED_SPAN


class TorchrlVectorEnv(VectorEnv):
    """B copies of a torchrl environment.

    Args:
        make: a new EnvBase, of batch size `[]` (one copy; called once for each) or `[n_envs]` (all of them).
        max_steps: truncates longer episodes.

    Copies that are environments of their own are seeded as VectorEnv says. One that holds all copies has one seed: all
    of it is a function of the seed given to `reset`, but no episode is of its own, and the seeds told count episodes.

    Raises:
        EnvBuildError: `make` raised or returned something else, or has specs that cannot be handled.
    """

    def __init__(self, make: Callable[[], EnvBase], n_envs: int, *, name: str, max_steps: int | None = None) -> None:
        if n_envs < 1:
            raise EnvBuildError(f"{name} needs at least one copy; asked for n_envs={n_envs}")
        envs = [_made(make, name)]
        shape = tuple(envs[0].batch_size)
        if shape not in ((), (n_envs,)):
            raise EnvBuildError(
                f"{name}: its batch size must be [] (one copy) or [{n_envs}] (as asked for); it is {list(shape)}. "
                "A constructor with an argument `n_envs` is told how many copies there are to be"
            )
        if not shape:
            envs += [_made(make, name) for _ in range(n_envs - 1)]
        device = envs[0].device or torch.device("cpu")
        self.n_envs, self.device = n_envs, device
        self.layout = layout_of(envs[0], name, max_steps)
        self.spec = self.layout.spec
        self._step = allocate_step(self.spec, n_envs, device)
        self._incoming = {g.name: ActionValidator(name, g, n_envs, device) for g in self.spec.groups}
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=device)
        self._clock = torch.zeros_like(self._episode)
        step = n_envs if shape else 1
        self._members = [
            _Member(env, self.layout, self._step, slice(i * step, (i + 1) * step)) for i, env in enumerate(envs)
        ]
        self._seed: int | None = None

    def reset(self, seed: int) -> Step:
        self._seed = int(seed) % SEED_SPAN
        self._episode.zero_()
        self._clock.zero_()
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
        self._step.done.zero_()
        for rows in self._step.groups.values():
            rows.reward.zero_()
            rows.terminated.zero_()
            rows.truncated.zero_()
        seeds = self._step.episode_seed.tolist()
        for member in self._members:
            member.begin(seeds[member.copies][0])
        return self._step

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every copy; see VectorEnv.

        Raises:
            EnvError: before the first `reset`; actions missing, of another shape or kind, NaN or out of range; an
                environment that raised.
        """
        if self._seed is None:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        groups = self._step.groups
        taken = {name: port.take(actions, groups[name].acting) for name, port in self._incoming.items()}
        self._clock += 1
        limit = self.spec.max_steps
        late = self._clock >= limit if limit else torch.zeros_like(self._step.done)
        for member in self._members:
            try:
                member.step(taken, late[member.copies])
            except Exception as error:
                seeds = self._step.episode_seed[member.copies].tolist()
                trace = traceback.format_exc().rstrip()
                raise EnvError(
                    f"{self.spec.name}: a step of the episodes with seeds {seeds} failed\n\n{trace}"
                ) from error
        done = self._step.done
        if done.any():
            self._episode += done
            self._clock.masked_fill_(done, 0)
            self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
            seeds = self._step.episode_seed.tolist()
            for member in self._members:
                if done[member.copies].any():
                    member.begin(seeds[member.copies][0], again=True)
        return self._step

    def render(self, index: int = 0) -> np.ndarray:
        """Copy `index` as its environment draws it, where each copy is one that has `render()`."""
        if not 0 <= index < self.n_envs:
            raise EnvError(f"{self.spec.name} has copies 0..{self.n_envs - 1}; asked to draw number {index}")
        env = self._members[index if len(self._members) > 1 else 0].env
        draw = getattr(env, "render", None) or getattr(getattr(env, "_env", None), "render", None)
        image = draw() if draw is not None and len(self._members) == self.n_envs else None
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            raise EnvBuildError(f"{self.spec.name} has no picture to render")
        return np.ascontiguousarray(image, dtype=np.uint8)

    def close(self) -> None:
        for member in self._members:
            if not member.env.is_closed:
                member.env.close()


class _Member:
    """One EnvBase, and the copies that it holds."""

    def __init__(self, env: EnvBase, layout: Layout, step: Step, copies: slice) -> None:
        self.env, self.copies = env, copies
        self._layout, self._n = layout, copies.stop - copies.start
        self._groups = [(g, _part(step.groups[g.spec.name], copies)) for g in layout.groups]
        self._gone = [torch.zeros_like(rows.alive) for _, rows in self._groups]
        self._done = step.done[copies]
        self._state = None if step.state is None else step.state[copies]
        self._final_state = None if step.final_state is None else step.final_state[copies]
        self._streams = RngStreams(self._done.device)
        self._now: TensorDictBase = TensorDict({}, batch_size=env.batch_size)

    def begin(self, seed: int, again: bool = False) -> None:
        """New episodes: in all copies under `seed`, or `again` in those that are done."""
        own = not self.env.batch_size
        with self._streams:
            if own or not again:
                self._streams.seed(seed)
                self.env.set_seed(seed)
                self._now = self.env.reset()
            else:
                self._now = self.env.reset(self._flagged())
        copies = self._done if again else torch.ones_like(self._done)
        for gone in self._gone:
            gone.masked_fill_(copies[:, None], False)
        self._look(self._now, copies)

    def _flagged(self) -> TensorDictBase:
        """What is there now, with the copies that are done flagged under `_reset`."""
        env = self.env
        flags = ["_reset"] if "_reset" in env.reset_keys else list(env.reset_keys)
        for key, dones in zip(env.reset_keys, env.done_keys_groups):
            if key in flags:
                shape = env.full_done_spec[dones[0]].shape
                self._now.set(key, self._done.view(-1, *[1] * (len(shape) - 1)).expand(shape).clone())
        return self._now

    def step(self, actions: Mapping[str, Tensor], late: Tensor) -> None:
        """Steps and writes what came of it; the next episodes are not begun."""
        for group, _ in self._groups:
            given = actions[group.spec.name][self.copies]
            self._now.set(group.key("action"), group.commanded(given, self.env.batch_size))
        with self._streams:
            both = self.env.step(self._now)
        outcome = both.get("next")
        self._now = self.env.step_mdp(both)
        self._end(outcome, late)
        self._look(outcome, None)

    def _end(self, outcome: TensorDictBase, late: Tensor) -> None:
        """Rewards, and who ended: by itself, with its copy, or because time is up."""
        root = {name: outcome.get(name).reshape(self._n) for name in self._layout.dones}
        over = root.get("done", torch.zeros_like(late)) | late
        cut = root.get("truncated", torch.zeros_like(late)) & ~root.get("terminated", torch.zeros_like(late))
        cut = cut | (late & ~root.get("done", torch.zeros_like(late)))
        lives = torch.zeros_like(late)
        ends = [self._own_ends(group, rows, outcome) for group, rows in self._groups]
        for (_, rows), gone, (ended, _) in zip(self._groups, self._gone, ends):
            lives |= (rows.alive & ~ended & ~gone).any(1)
        torch.logical_or(over, ~lives, out=self._done)
        for (group, rows), gone, (ended, truncated) in zip(self._groups, self._gone, ends):
            was = rows.alive
            value = outcome.get(group.key("reward")).reshape(rows.reward.shape)
            rows.reward.copy_(value.float().masked_fill(~was, 0.0))
            rest = was & ~ended & self._done[:, None]
            torch.logical_or(ended & truncated, rest & cut[:, None], out=rows.truncated)
            torch.logical_and(ended | rest, ~rows.truncated, out=rows.terminated)
            rows.final_observation.copy_(group.seen(outcome, self._n))
            gone |= ended
        if self._final_state is not None:
            self._final_state.copy_(outcome.get("state").reshape(self._final_state.shape))

    def _own_ends(self, group: GroupLayout, rows: GroupStep, outcome: TensorDictBase) -> tuple[Tensor, Tensor]:
        """`[env, agent]`: whose episodes have ended just now by their own flags, and whether they were cut."""
        nobody = torch.zeros_like(rows.alive)
        found = {
            name: group.flags(outcome, name, self._n)
            for name in ("done", "terminated", "truncated")
            if name in group.known
        }
        terminated, truncated = found.get("terminated", nobody), found.get("truncated", nobody)
        ended = (found.get("done", nobody) | terminated | truncated) & rows.alive
        left = nobody
        if (present := self._present(group)) is not None:
            left = rows.alive & ~group.flags(outcome, present, self._n)
        return ended | left, truncated & ~terminated

    @staticmethod
    def _present(group: GroupLayout) -> str | None:
        return next((name for name in ("alive", "mask") if name in group.known), None)

    def _look(self, data: TensorDictBase, copies: Tensor | None) -> None:
        """Writes what is seen now, in the copies flagged `[env]` or in all."""
        for (group, rows), gone in zip(self._groups, self._gone):
            present = self._present(group)
            alive = ~gone if present is None else group.flags(data, present, self._n) & ~gone
            acting, mask = self._acting(group, data, alive)
            seen = group.seen(data, self._n)
            seen = seen.masked_fill(~alive.view(*alive.shape, *[1] * (seen.dim() - 2)), 0)
            _write(rows.observation, seen, copies)
            _write(rows.alive, alive, copies)
            _write(rows.acting, acting, copies)
            if rows.action_mask is not None:
                assert mask is not None
                _write(rows.action_mask, mask | ~acting[..., None], copies)
        if self._state is not None:
            _write(self._state, data.get("state").reshape(self._state.shape), copies)

    def _acting(self, group: GroupLayout, data: TensorDictBase, alive: Tensor) -> tuple[Tensor, Tensor | None]:
        """Who is asked for an action `[env, agent]`, and what each may choose, where that is told."""
        mask, acting = None, alive
        if group.spec.has_action_mask:
            told = data.get(group.key("action_mask"), None)
            mask = self.env.full_action_spec[group.key("action")].mask if told is None else told
            mask = mask.reshape(*alive.shape, -1)
            acting = acting & mask.any(-1)
        if "acting" in group.known:
            acting = acting & group.flags(data, "acting", self._n)
        if self._layout.players:
            player = int(data.get(PLAYER))
            if player >= 0:
                turn = [agent == self._layout.players[player] for agent in group.spec.agents]
                acting = acting & torch.tensor(turn, device=alive.device)
        return acting, mask


def _write(target: Tensor, value: Tensor, copies: Tensor | None) -> None:
    if copies is None:
        target.copy_(value)
    else:
        target.copy_(torch.where(copies.view(-1, *[1] * (target.dim() - 1)), value.to(target.dtype), target))


def _part(rows: GroupStep, copies: slice) -> GroupStep:
    """Views of some copies' rows."""
    parts = {field.name: getattr(rows, field.name) for field in fields(GroupStep)}
    return GroupStep(**{name: None if part is None else part[copies] for name, part in parts.items()})  # type: ignore[arg-type]


def _made(make: Callable[[], EnvBase], name: str) -> EnvBase:
    env = construct(name, make, {})
    if not isinstance(env, EnvBase):
        raise EnvBuildError(f"{name}: the constructor must return a torchrl EnvBase; it returned {type(env).__name__}")
    return env
