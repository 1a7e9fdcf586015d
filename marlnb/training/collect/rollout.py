"""Rollouts: T steps of every environment, collected into buffers that are allocated once, as one Rollout.

Layout, batch `[env, time]`, for each group g of n agents:

- `is_init` `[env, time, 1]`: the first step of an episode. `("next", "done")` `[env, time, 1]`: the episode ended here.
- `state`, `("next", "state")` `[env, time, *state_shape]`, if the environment has a state.
- `paused` `[env, time, 1]`, no agent acts, if the environment `pauses`.
- `(g, "observation")` `[env, time, agent, *shape]`, `(g, "action")`, `(g, "log_prob")` `[env, time, agent]`,
  `(g, "alive")`, `(g, "acting")` `[env, time, agent]`, `(g, "action_mask")` `[env, time, agent, choice]` if there is
  one, `(g, "recurrent")` `[env, time, agent, layer, unit]`, the actor's state before the step, if there is one, and
  `(g, name)` for each of the policy's extras.
- `("next", g, "observation")`: the next observation; the agent's final one if its episode ended at this step; zero for
  an agent that is dead already when the environment's episode ends.
  `("next", g, "reward" | "terminated" | "truncated" | "done")` `[env, time, agent, 1]`, `("next", g, "alive")`,
  `("next", g, "action_mask")` if there is one, of the next observation, also where that is the final one of an agent
  whose episode was truncated; all True for the other agents where the environment's episode ended.

An agent learns from the steps at which it acts. In turn-based games the recurrent state of a waiting agent does not
change. The first step of a rollout follows the last step of the previous one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.envs.vector import GroupStep, Step, VectorEnv
from marlnb.errors import EnvError, ShapeError
from marlnb.models.policies.policy import ActorOutput, Policy
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.collect.next_values import Final, shift, shift_by_mask


@dataclass
class Timing:
    """Where the seconds of a rollout went.

    Attributes:
        stepping_s: stepping the environment.
        acting_s: choosing actions and storing them.
    """

    stepping_s: float = 0.0
    acting_s: float = 0.0


class Collector:
    """Steps an environment under policies and fills the rollout.

    Args:
        env: the environment.
        policies: by group, on `device`. The collector holds their recurrent states, which are zero at an episode's
            start.
        n_steps: T.
        generator: of the sampled actions, on `device`.
        device: of the rollout.

    Attributes:
        by_mask: whether ends of episodes are handled by masks at every step. Otherwise Python asks first whether there
            are any, which is cheaper on a CPU, and on a GPU would wait for the step.
    """

    def __init__(
        self,
        env: VectorEnv,
        policies: Mapping[str, Policy],
        n_steps: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.env = env
        self.timing = Timing()
        self._n_steps = n_steps
        self._device = torch.device(device)
        self._generator = generator
        self.by_mask = self._device.type != "cpu"
        self._same_device = (self._device.type, self._device.index or 0) == (env.device.type, env.device.index or 0)
        self._groups = [
            _GroupBuffers(spec, policies[spec.name], env, n_steps, self._device) for spec in env.spec.groups
        ]
        self._is_init = torch.ones(env.n_envs, n_steps, 1, dtype=torch.bool, device=self._device)
        self._done = torch.zeros_like(self._is_init)
        self._paused = torch.zeros_like(self._is_init) if env.spec.pauses else None
        self._done_at = self._done[..., 0].unbind(1)
        self._is_first = torch.ones(env.n_envs, 1, dtype=torch.bool, device=self._device)
        self._state = (
            _StateBuffers(env.spec, env.n_envs, n_steps, self._device) if env.spec.state_shape is not None else None
        )
        self._step: Step | None = None
        self._rollout: Rollout | None = None

    def with_policies(self, policies: Mapping[str, Policy]) -> Collector:
        """One that continues the same episodes with other policies."""
        other = Collector(self.env, policies, self._n_steps, generator=self._generator, device=self._device)
        if self._step is not None:
            other.load_state_dict(self.state_dict(), self._step)
        return other

    def reset(self, seed: int) -> None:
        """Resets every environment."""
        self._step = self.env.reset(seed)
        self._is_first.fill_(True)
        for group in self._groups:
            group.reset_all()

    def state_dict(self) -> dict[str, Any]:
        """What the next rollout takes over from this one, apart from the environment's own state."""
        recurrent = {group.name: group.recurrent.clone() for group in self._groups if group.recurrent is not None}
        return {"begins": self._is_first.clone(), "recurrent": recurrent}

    def load_state_dict(self, state: Mapping[str, Any], step: Step) -> None:
        """Restores `state`, at the observations of `step`."""
        self._step = step
        self._is_first.copy_(state["begins"])
        for group in self._groups:
            if group.recurrent is not None:
                group.start_from(state["recurrent"][group.name])

    def collect(self) -> Rollout:
        """T steps of every environment. The next call fills the same buffers and returns the same Rollout."""
        (rollout,) = collect_in_turn([self])
        return rollout

    def steps(self) -> Iterator[None]:
        """The T steps of `collect`; yields after the start of each, while environments in other processes step."""
        step, groups, env, generator = self._step, self._groups, self.env, self._generator
        assert step is not None, "call reset or load_state_dict first"
        self._is_init[:, 0] = self._is_first
        for group in groups:
            group.start()
        acting_s, stepping_s, stepped_at = 0.0, 0.0, perf_counter()
        for t in range(self._n_steps):
            if self._state is not None:
                self._state.at[t].copy_(step.state)  # type: ignore[arg-type]
            same_device = self._same_device
            actions = {group.name: group.act(step.groups[group.name], t, generator, same_device) for group in groups}
            if not same_device:
                actions = {name: action.to(env.device) for name, action in actions.items()}
            acted_at = perf_counter()
            acting_s += acted_at - stepped_at
            try:
                env.start_step(actions)
                stepping_s += perf_counter() - acted_at
                yield
                acted_at = perf_counter()
                step = env.finish_step()
            except EnvError:
                self._done[:, t:] = False  # these are of the previous rollout
                raise
            stepped_at = perf_counter()
            stepping_s += stepped_at - acted_at
            self._done_at[t].copy_(step.done)  # the environment reuses its buffers at the next step
            for group in groups:
                group.store_outcome(step.groups[group.name], t, self.by_mask)
            if self.by_mask or step.done.any():
                done = step.done.to(self._device)
                for group in groups:
                    group.reset(done)
                if self._state is not None:
                    self._state.keep_final(step, t, self.by_mask)
        self._step = step
        self._finish(step)
        self.timing.stepping_s += stepping_s
        self.timing.acting_s += acting_s + perf_counter() - stepped_at

    @property
    def rollout(self) -> Rollout:
        """The buffers: the last rollout, or the beginning of one that raised an error."""
        if self._rollout is None:
            self._rollout = self._build()
        return self._rollout

    @property
    def step(self) -> Step:
        """With which the next rollout begins."""
        assert self._step is not None, "call reset or load_state_dict first"
        return self._step

    @property
    def episode_seeds(self) -> Tensor:
        """`[env]`, of the episodes that are in progress."""
        return self.step.episode_seed

    def _finish(self, step: Step) -> None:
        """Fills the fields that follow from the stored steps, for all steps at once."""
        self._is_init[:, 1:] = self._done[:, :-1]
        self._is_first.copy_(self._done[:, -1])
        done = self._done
        for group in self._groups:
            group.finish(step.groups[group.name], done, self.by_mask)
        if self._state is not None:
            self._state.finish(step, done, self.by_mask)
        if self._paused is not None:
            acting = torch.cat([group.now["acting"] for group in self._groups], -1)
            self._paused.copy_(~acting.any(-1, keepdim=True))

    def _build(self) -> Rollout:
        tree: dict[str, Any] = {"is_init": self._is_init, "next": {"done": self._done}}
        if self._state is not None:
            tree["state"], tree["next"]["state"] = self._state.now, self._state.next
        if self._paused is not None:
            tree["paused"] = self._paused
        for group in self._groups:
            tree[group.name], tree["next"][group.name] = group.now, group.next
        return Rollout(tree, (self.env.n_envs, self._n_steps))


@torch.no_grad()
def collect_in_turn(collectors: Sequence[Collector]) -> list[Rollout]:
    """As `collect` of each, of equal numbers of steps: while environments of one step in processes, others act."""
    for _ in itertools.zip_longest(*(collector.steps() for collector in collectors)):
        pass
    return [collector.rollout for collector in collectors]


class _StateBuffers:
    def __init__(self, spec: EnvSpec, n_envs: int, n_steps: int, device: torch.device) -> None:
        assert spec.state_shape is not None
        self.now = torch.zeros(n_envs, n_steps, *spec.state_shape, device=device)
        self.next = torch.zeros_like(self.now)
        self.at = self.now.unbind(1)
        self._finals: list[Final] = []

    def keep_final(self, step: Step, t: int, by_mask: bool) -> None:
        assert step.final_state is not None
        if by_mask:
            self.next[:, t].copy_(step.final_state)  # `finish` keeps it where an episode ended
            return
        self._finals.append(Final(t, step.done.clone(), step.final_state.clone()))

    def finish(self, step: Step, done: Tensor, by_mask: bool) -> None:
        assert step.state is not None
        if by_mask:
            shift_by_mask(self.now, self.next, step.state, done[..., 0])
        else:
            shift(self.now, self.next, step.state, self._finals)


class _GroupBuffers:
    """One group's part of the rollout. The views of every buffer at every step are made once, not in the loop."""

    def __init__(self, spec: GroupSpec, policy: Policy, env: VectorEnv, n_steps: int, device: torch.device) -> None:
        self.name, self.policy = spec.name, policy
        self._turn_based = not env.spec.simultaneous
        self._shape, self._device = (env.n_envs, n_steps, spec.n_agents), device
        self._has_mask = spec.has_action_mask
        self.now: dict[str, Tensor] = {}
        self._at: dict[str, Sequence[Tensor]] = {}
        observation = getattr(torch, spec.observation.dtype)
        self._observation_at = self._add("observation", *spec.observation.shape, dtype=observation)
        self._action_at = self._add("action", *spec.action.shape, dtype=getattr(torch, spec.action.dtype))
        self._log_prob_at = self._add("log_prob")
        self._alive_at = self._add("alive", dtype=torch.bool)
        self._acting_at = self._add("acting", dtype=torch.bool)
        if self._has_mask:
            self._mask_at = self._add("action_mask", spec.action.n_logits, dtype=torch.bool)
        self._start = self.recurrent = policy.initial_recurrent(env.n_envs, device)
        if policy.recurrent_shape is not None:
            self._recurrent_at = self._add("recurrent", *policy.recurrent_shape)
        self._extras_at: dict[str, Sequence[Tensor]] | None = None  # of the policy's extras, known after its first step
        flags = {
            name: torch.zeros(*self._shape, 1, dtype=torch.bool, device=device)
            for name in ("terminated", "truncated", "done")
        }
        self.next = {
            "observation": torch.zeros_like(self.now["observation"]),
            "reward": torch.zeros(*self._shape, 1, device=device),
            **flags,
            "alive": torch.zeros_like(self.now["alive"]),
        }
        if self._has_mask:
            self.next["action_mask"] = torch.zeros_like(self.now["action_mask"])
        self._reward_at = self.next["reward"][..., 0].unbind(1)
        self._terminated_at = flags["terminated"][..., 0].unbind(1)
        self._truncated_at = flags["truncated"][..., 0].unbind(1)
        self._finals: list[Final] = []
        self._final_masks: list[Final] = []

    def start(self) -> None:
        """Starts a rollout where the last one that was completed ended, not where a failed capture stopped."""
        self.recurrent = self._start

    def act(self, step: GroupStep, t: int, generator: torch.Generator | None, same_device: bool) -> Tensor:
        """Stores the time step, chooses the actions and stores them."""
        observation = self._observation_at[t].copy_(step.observation)
        mask = None
        if self._has_mask:
            assert step.action_mask is not None
            stored = self._mask_at[t].copy_(step.action_mask)
            mask = step.action_mask if same_device else stored
        self._alive_at[t].copy_(step.alive)
        self._acting_at[t].copy_(step.acting)
        if self.recurrent is not None:
            self._recurrent_at[t].copy_(self.recurrent)
        output = self.policy.act(
            step.observation if same_device else observation,
            recurrent=self.recurrent,
            action_mask=mask,
            generator=generator,
        )
        self._action_at[t].copy_(output.action)
        self._log_prob_at[t].copy_(output.log_prob)
        acting = self._acting_at[t] if self._turn_based else None
        self.recurrent = next_recurrent(self.recurrent, output.recurrent, acting)
        if output.extras:
            self._store_extras(output, t)
        return output.action

    def store_outcome(self, step: GroupStep, t: int, by_mask: bool) -> None:
        self._reward_at[t].copy_(step.reward)
        self._terminated_at[t].copy_(step.terminated)
        self._truncated_at[t].copy_(step.truncated)
        if by_mask:
            self.next["observation"][:, t].copy_(step.final_observation)  # `finish` keeps it where an episode ended
            if self._has_mask:
                assert step.final_action_mask is not None
                self.next["action_mask"][:, t].copy_(step.final_action_mask)
            return
        ended = step.terminated | step.truncated
        if ended.any():
            # the next row holds the next episode's first observation, so keep the final one until `finish`
            self._finals.append(Final(t, ended, step.final_observation.clone()))
            if self._has_mask:
                assert step.final_action_mask is not None
                self._final_masks.append(Final(t, step.truncated.clone(), step.final_action_mask.clone()))

    def reset(self, done: Tensor) -> None:
        """Zeroes the states of environments `[env]` that start an episode."""
        self.policy.begin_episodes(done)
        if self.recurrent is not None:
            self.recurrent = self.recurrent.masked_fill(done[:, None, None, None], 0.0)

    def reset_all(self) -> None:
        self.policy.begin_episodes(torch.ones(self._shape[0], dtype=torch.bool))
        if self._start is not None:
            self.start_from(torch.zeros_like(self._start))

    def start_from(self, recurrent: Tensor) -> None:
        """The next rollout starts with these states. They are always in one place, where a captured rollout reads."""
        assert self._start is not None
        self.recurrent = self._start.copy_(recurrent)

    def finish(self, step: GroupStep, done: Tensor, by_mask: bool) -> None:
        terminated, alive = self.next["terminated"], self.now["alive"]
        torch.logical_or(terminated, self.next["truncated"], out=self.next["done"])
        observation, next_observation = self.now["observation"], self.next["observation"]
        if by_mask:
            shift_by_mask(observation, next_observation, step.observation, self.next["done"][..., 0])
        else:
            shift(observation, next_observation, step.observation, self._finals)
        gone = done & ~alive  # [env, time, agent]: who starts the next episode had died in the one that ended here
        if by_mask or gone.any():
            next_observation.masked_fill_(gone.reshape(*gone.shape, *(1,) * (next_observation.ndim - 3)), 0)
        next_alive = self.next["alive"]
        next_alive[:, :-1] = alive[:, 1:]
        next_alive[:, -1] = step.alive
        torch.where(done, alive & ~terminated[..., 0], next_alive, out=next_alive)
        if self._has_mask:
            self._finish_mask(step, done, by_mask)
        if self.recurrent is not None:
            self.start_from(self.recurrent)

    def _finish_mask(self, step: GroupStep, done: Tensor, by_mask: bool) -> None:
        assert step.action_mask is not None
        mask, next_mask, truncated = self.now["action_mask"], self.next["action_mask"], self.next["truncated"]
        if by_mask:
            shift_by_mask(mask, next_mask, step.action_mask, truncated[..., 0])
        else:
            shift(mask, next_mask, step.action_mask, self._final_masks)
        next_mask |= done[..., None] & ~truncated  # the next step is of another episode

    def _add(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Sequence[Tensor]:
        self.now[name] = torch.zeros(*self._shape, *shape, dtype=dtype, device=self._device)
        return self.now[name].unbind(1)

    def _store_extras(self, output: ActorOutput, t: int) -> None:
        if self._extras_at is None:
            duplicates = sorted(set(output.extras) & set(self.now))
            if duplicates:
                raise ShapeError(f"extras of the policy of {self.name!r} have names of rollout fields: {duplicates}")
            extras = output.extras.items()
            self._extras_at = {name: self._add(name, *value.shape[2:], dtype=value.dtype) for name, value in extras}
        for name, value in output.extras.items():
            self._extras_at[name][t].copy_(value)


def next_recurrent(before: Tensor | None, after: Tensor | None, acting: Tensor | None) -> Tensor | None:
    """The recurrent state `[env, agent, layer, unit]` after a step. It changes where `acting`; None: everywhere."""
    if before is None or after is None or acting is None:
        return after
    return torch.where(acting[:, :, None, None], after, before)
