"""The VectorEnv over torchrl environments: a batched one, or one per env."""

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
from marlnb.envs.picture import checked_picture
from marlnb.envs.rng_streams import RngStreams
from marlnb.envs.torchrl.layout import PLAYER, GroupLayout, Layout, layout_of
from marlnb.envs.vector import GroupStep, Step, VectorEnv, allocate_step, check_n_envs, episode_seeds
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import SEED_SPAN


class TorchrlVectorEnv(VectorEnv):
    """B envs of a torchrl environment.

    Unbatched environments are seeded as VectorEnv states. A batched environment has one seed: the whole rollout is a
    function of the seed given to `reset`, but a single episode cannot be repeated, and its reported seed only counts
    episodes.

    Args:
        make: returns a new EnvBase, of batch size `[]` (one env; called once per env) or `[n_envs]` (all envs).
        n_envs: B.
        name: for messages.
        max_steps: truncates longer episodes.
    Raises:
        EnvBuildError: `make` raised or returned something else, or its specs are not supported.
    """

    def __init__(self, make: Callable[[], EnvBase], n_envs: int, *, name: str, max_steps: int | None = None) -> None:
        check_n_envs(name, n_envs)
        envs = [_make(make, name)]
        shape = tuple(envs[0].batch_size)
        if shape not in ((), (n_envs,)):
            raise EnvBuildError(
                f"{name}: its batch size must be [] (one env) or [{n_envs}] (all envs); got {list(shape)}. "
                "A constructor that has a parameter `n_envs` receives the number of envs"
            )
        if not shape:
            envs += [_make(make, name) for _ in range(n_envs - 1)]
        device = envs[0].device or torch.device("cpu")
        self.n_envs, self.device = n_envs, device
        self.layout = layout_of(envs[0], name, max_steps)
        self.spec = self.layout.spec
        self._step = allocate_step(self.spec, n_envs, device)
        self._validators = {g.name: ActionValidator(name, g, n_envs, device) for g in self.spec.groups}
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
        self._step.clear_transition()
        seeds = self._step.episode_seed.tolist()
        for member in self._members:
            member.begin(seeds[member.envs][0])
        return self._step

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every env; see VectorEnv.

        Raises:
            EnvError: before the first `reset`; missing actions, another shape or dtype, NaN, or a value out of range;
                an environment raised.
        """
        if self._seed is None:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        groups = self._step.groups
        valid = {name: validator.check(actions, groups[name].acting) for name, validator in self._validators.items()}
        self._clock += 1
        limit = self.spec.max_steps
        timed_out = self._clock >= limit if limit else torch.zeros_like(self._step.done)
        for member in self._members:
            try:
                member.step(valid, timed_out[member.envs])
            except Exception as error:
                seeds = self._step.episode_seed[member.envs].tolist()
                trace = traceback.format_exc().rstrip()
                raise EnvError(
                    f"{self.spec.name}: a step of the episodes with seeds {seeds} failed\n\n{trace}"
                ) from error
        done = self._step.done
        if done.any():
            if self._end_pictures is not None:
                self._end_pictures |= {index: self.render(index) for index in done.nonzero().flatten().tolist()}
            self._episode += done
            self._clock.masked_fill_(done, 0)
            self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
            seeds = self._step.episode_seed.tolist()
            for member in self._members:
                if done[member.envs].any():
                    member.begin(seeds[member.envs][0], again=True)
        return self._step

    def render(self, index: int = 0) -> np.ndarray:
        """Env `index` as its own `render()` draws it; a batched environment cannot be rendered."""
        self._check_index(index)
        env = self._members[index if len(self._members) > 1 else 0].env
        draw = getattr(env, "render", None) or getattr(getattr(env, "_env", None), "render", None)
        if draw is None or len(self._members) != self.n_envs:
            raise EnvBuildError(f"{self.spec.name} cannot be rendered")
        return checked_picture(self.spec.name, "render()", draw())

    def close(self) -> None:
        for member in self._members:
            if not member.env.is_closed:
                member.env.close()


class _Member:
    """One EnvBase, and the envs that it contains."""

    def __init__(self, env: EnvBase, layout: Layout, step: Step, envs: slice) -> None:
        self.env, self.envs = env, envs
        self._layout, self._n = layout, envs.stop - envs.start
        self._groups = [(g, _part(step.groups[g.spec.name], envs)) for g in layout.groups]
        self._ended = [torch.zeros_like(rows.alive) for _, rows in self._groups]
        self._done = step.done[envs]
        self._state = None if step.state is None else step.state[envs]
        self._final_state = None if step.final_state is None else step.final_state[envs]
        self._streams = RngStreams(self._done.device)
        self._current: TensorDictBase = TensorDict({}, batch_size=env.batch_size)

    def begin(self, seed: int, again: bool = False) -> None:
        """Starts new episodes: in all envs with `seed`, or with `again=True` in those that are done."""
        is_unbatched = not self.env.batch_size
        with self._streams:
            if is_unbatched or not again:
                self._streams.seed(seed)
                self.env.set_seed(seed)
                self._current = self.env.reset()
            else:
                self._current = self.env.reset(self._with_reset_flags())
        starting = self._done if again else torch.ones_like(self._done)
        for ended in self._ended:
            ended.masked_fill_(starting[:, None], False)
        self._observe(self._current, starting)

    def _with_reset_flags(self) -> TensorDictBase:
        """The current data, with the envs that are done flagged under `_reset`."""
        env = self.env
        flags = ["_reset"] if "_reset" in env.reset_keys else list(env.reset_keys)
        for key, dones in zip(env.reset_keys, env.done_keys_groups):
            if key in flags:
                shape = env.full_done_spec[dones[0]].shape
                self._current.set(key, self._done.view(-1, *[1] * (len(shape) - 1)).expand(shape).clone())
        return self._current

    def step(self, actions: Mapping[str, Tensor], timed_out: Tensor) -> None:
        """Steps and writes the result; does not start the next episodes."""
        for group, _ in self._groups:
            action = actions[group.spec.name][self.envs]
            self._current.set(group.key("action"), group.encode_action(action, self.env.batch_size))
        with self._streams:
            both = self.env.step(self._current)
        outcome = both.get("next")
        self._current = self.env.step_mdp(both)
        self._write_transition(outcome, timed_out)
        self._observe(outcome, None)

    def _write_transition(self, outcome: TensorDictBase, timed_out: Tensor) -> None:
        """Writes rewards and ends: of single agents, of whole envs, or because of `max_steps`."""
        root = {name: outcome.get(name).reshape(self._n) for name in self._layout.dones}
        over = root.get("done", torch.zeros_like(timed_out)) | timed_out
        cut = root.get("truncated", torch.zeros_like(timed_out)) & ~root.get("terminated", torch.zeros_like(timed_out))
        cut = cut | (timed_out & ~root.get("done", torch.zeros_like(timed_out)))
        lives = torch.zeros_like(timed_out)
        ends = [self._agent_ends(group, rows, outcome) for group, rows in self._groups]
        for (_, rows), was_ended, (ended, _) in zip(self._groups, self._ended, ends):
            lives |= (rows.alive & ~ended & ~was_ended).any(1)
        torch.logical_or(over, ~lives, out=self._done)
        for (group, rows), was_ended, (ended, truncated) in zip(self._groups, self._ended, ends):
            was_alive = rows.alive
            value = outcome.get(group.key("reward")).reshape(rows.reward.shape)
            rows.reward.copy_(value.float().masked_fill(~was_alive, 0.0))
            rest = was_alive & ~ended & self._done[:, None]
            torch.logical_or(ended & truncated, rest & cut[:, None], out=rows.truncated)
            torch.logical_and(ended | rest, ~rows.truncated, out=rows.terminated)
            rows.final_observation.copy_(group.observation(outcome, self._n))
            if rows.final_action_mask is not None and bool(rows.truncated.any()):
                mask = self._mask(group, outcome)
                acting = self._with_turn(group, outcome, mask.any(-1))  # the key "acting" may be False after an end
                rows.final_action_mask.copy_(mask | ~acting[..., None])
            was_ended |= ended
        if self._final_state is not None:
            self._final_state.copy_(_state_of(outcome).reshape(self._final_state.shape))

    def _agent_ends(self, group: GroupLayout, rows: GroupStep, outcome: TensorDictBase) -> tuple[Tensor, Tensor]:
        """`[env, agent]`: agents whose episodes have just ended by their own flags, and whether they were truncated."""
        none = torch.zeros_like(rows.alive)
        flags = {
            name: group.flags(outcome, name, self._n)
            for name in ("done", "terminated", "truncated")
            if name in group.known
        }
        terminated, truncated = flags.get("terminated", none), flags.get("truncated", none)
        ended = (flags.get("done", none) | terminated | truncated) & rows.alive
        left = none
        if (present := self._present(group)) is not None:
            left = rows.alive & ~group.flags(outcome, present, self._n)
        return ended | left, truncated & ~terminated

    @staticmethod
    def _present(group: GroupLayout) -> str | None:
        return next((name for name in ("alive", "mask") if name in group.known), None)

    def _observe(self, data: TensorDictBase, selected: Tensor | None) -> None:
        """Writes the current observations, in the envs flagged in `selected` `[env]` or in all."""
        for (group, rows), ended in zip(self._groups, self._ended):
            present = self._present(group)
            alive = ~ended if present is None else group.flags(data, present, self._n) & ~ended
            acting, mask = self._acting(group, data, alive)
            observation = group.observation(data, self._n)
            observation = observation.masked_fill(~alive.view(*alive.shape, *[1] * (observation.dim() - 2)), 0)
            _write(rows.observation, observation, selected)
            _write(rows.alive, alive, selected)
            _write(rows.acting, acting, selected)
            if rows.action_mask is not None:
                assert mask is not None
                _write(rows.action_mask, mask | ~acting[..., None], selected)
        if self._state is not None:
            _write(self._state, _state_of(data).reshape(self._state.shape), selected)

    def _acting(self, group: GroupLayout, data: TensorDictBase, alive: Tensor) -> tuple[Tensor, Tensor | None]:
        """`[env, agent]`: the agents that act now; and their action masks if there are any."""
        mask, acting = None, alive
        if group.spec.has_action_mask:
            mask = self._mask(group, data)
            acting = acting & mask.any(-1)
        if "acting" in group.known:
            acting = acting & group.flags(data, "acting", self._n)
        return self._with_turn(group, data, acting), mask

    def _mask(self, group: GroupLayout, data: TensorDictBase) -> Tensor:
        """`[env, agent, choice]`: the action mask in the data, or that of the action's spec."""
        mask = data.get(group.key("action_mask"), None)
        mask = self.env.full_action_spec[group.key("action")].mask if mask is None else mask
        return mask.reshape(self._n, group.spec.n_agents, -1)

    def _with_turn(self, group: GroupLayout, data: TensorDictBase, acting: Tensor) -> Tensor:
        """`acting` without those whose turn it is not, where the data names the player that moves."""
        player = int(data.get(PLAYER)) if self._layout.players else -1
        if player < 0:
            return acting
        turn = [agent == self._layout.players[player] for agent in group.spec.agents]
        return acting & torch.tensor(turn, device=acting.device)


def _state_of(data: TensorDictBase) -> Tensor:
    """The global state as critics read it: bytes are scaled to 0..1, as those of observations are."""
    state: Tensor = data.get("state")
    return state / 255 if state.dtype == torch.uint8 else state


def _write(target: Tensor, value: Tensor, selected: Tensor | None) -> None:
    if selected is None:
        target.copy_(value)
    else:
        target.copy_(torch.where(selected.view(-1, *[1] * (target.dim() - 1)), value.to(target.dtype), target))


def _part(rows: GroupStep, envs: slice) -> GroupStep:
    """Views of the rows of some envs."""
    parts = {field.name: getattr(rows, field.name) for field in fields(GroupStep)}
    return GroupStep(**{name: None if part is None else part[envs] for name, part in parts.items()})  # type: ignore[arg-type]


def _make(make: Callable[[], EnvBase], name: str) -> EnvBase:
    env = construct(name, make, {})
    if not isinstance(env, EnvBase):
        raise EnvBuildError(f"{name}: the constructor must return a torchrl EnvBase; it returned {type(env).__name__}")
    return env
