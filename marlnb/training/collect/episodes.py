"""Whole episodes under policies: the loop that evaluation, recording and analyses share.

Exactly the requested episodes count, whatever their lengths, and episode k has the seed `seed + k`. Counting whichever
episodes end first would favour short ones.

Training has its own loop (`marlnb.training.collect.rollout`): it cuts experience after a fixed number of steps,
continues in the next rollout, and fills preallocated buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from marlnb.display.array_summary import FieldsSummary
from marlnb.display.formatting import count, format_number
from marlnb.display.notebook_html import frame_html
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import ConfigError, EnvError
from marlnb.models.hooks import episode_context
from marlnb.models.policies.policy import ActorOutput, Policy, device_of, eval_mode, new_noise
from marlnb.specs import EnvSpec
from marlnb.training.collect.finite import check_step
from marlnb.training.collect.rollout import next_recurrent
from marlnb.training.collect.threads import torch_threads
from marlnb.training.shared_return import is_zero_sum

if TYPE_CHECKING:
    import pandas as pd

MAX_STEPS = 100_000
"""Without the end of an episode, after which one of an environment that states no limit is taken to be endless."""


@dataclass(frozen=True, slots=True, repr=False)
class TimeStep(FieldsSummary):
    """One time step of all environments: observations and the actions just chosen. The environment has not stepped yet.

    Its tensors are the environment's own buffers, valid until it steps.

    Attributes:
        episode: `[env]` int64, number of the episode; -1 for an episode that does not count.
        t: `[env]` int64, steps since the episode started.
        episode_seed: `[env]` int64.
        observation: by group, as in `GroupStep`, as are the next three.
        alive: by group.
        acting: by group.
        action_mask: by group; None where there is none.
        recurrent: by group, the actor's state before the step, `[env, agent, layer, unit]`; None where there is none.
        output: by group, what the policy returned.
        state: `[env, *state_shape]`; None if the environment has none.
        returns: by group, `[env, agent]` float64, the sum of rewards since the episode started.
        env: the environment.
        labels: `VectorEnv.labels()`, computed when first read; must not be read after the step.
    """

    episode: Tensor
    t: Tensor
    episode_seed: Tensor
    observation: Mapping[str, Tensor]
    alive: Mapping[str, Tensor]
    acting: Mapping[str, Tensor]
    action_mask: Mapping[str, Tensor | None]
    recurrent: Mapping[str, Tensor | None]
    output: Mapping[str, ActorOutput]
    state: Tensor | None
    returns: Mapping[str, Tensor]
    env: VectorEnv
    _labels: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def labels(self) -> Mapping[str, Tensor]:
        if not self._labels:
            self._labels.update(self.env.labels())
        return self._labels


OverrideAction = Callable[[TimeStep], Mapping[str, Tensor]]


class RolloutCallback(Protocol):
    """Called by `play` around every step. Tensors are valid during the call only."""

    def before_step(self, time_step: TimeStep) -> None:
        """Called when the actions are chosen and the environment has not stepped yet."""

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        """Called after the step, which has overwritten the time step's buffers of observations and masks.

        Args:
            ended: whether this step ended the episode of at least one env.
        """


@dataclass(frozen=True, repr=False)
class EpisodeTable:
    """Episodes 0 to n-1, in order.

    Attributes:
        spec: of the environment.
        length: `[episode]` int64, steps.
        seed: `[episode]` int64.
        returns: by group, `[episode, agent]` float64, each agent's undiscounted sum of rewards.
    """

    spec: EnvSpec
    length: np.ndarray
    seed: np.ndarray
    returns: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.length)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {format_number(values.mean())}" for name, values in self.scored_returns().items())
        return f"<{count(len(self), 'episode')} of {self.spec.name}, mean return: {means}>"

    def _repr_html_(self) -> str:
        return frame_html(self.to_frame(), max_rows=10, digits=4)

    def group_return(self, group: str) -> np.ndarray:
        """`[episode]`: the mean over the group's agents."""
        self.spec.group(group)
        return np.asarray(self.returns[group].mean(axis=1))

    @property
    def zero_sum_groups(self) -> tuple[str, ...]:
        """Groups whose agents play against each other: their returns add up to 0 in every episode."""
        return tuple(
            name
            for name, values in self.returns.items()
            if is_zero_sum(values.sum(axis=1), np.abs(values).max(initial=0))
        )

    def scored_returns(self) -> dict[str, np.ndarray]:
        """`[episode]` by group, `group_return`; by agent where a group's agents play against each other."""
        scored: dict[str, np.ndarray] = {}
        for group in self.spec.groups:
            if group.name in self.zero_sum_groups:
                scored |= dict(zip(group.agents, self.returns[group.name].T))
            else:
                scored[group.name] = self.group_return(group.name)
        return scored

    def to_json(self) -> dict[str, list[float | None]]:
        """By group, `group_return` of each episode, for JSON; None where it is not finite."""
        return {
            group: [value if math.isfinite(value) else None for value in self.group_return(group).tolist()]
            for group in self.spec.group_names
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per episode: seed, length, and the return of each agent by its name."""
        import pandas as pd

        columns = {"seed": self.seed, "length": self.length}
        for group in self.spec.groups:
            columns |= dict(zip(group.agents, self.returns[group.name].T))
        return pd.DataFrame(columns).rename_axis("episode")


def play(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    *,
    episodes: int,
    seed: int,
    explore: bool,
    generator: torch.Generator | Mapping[str, torch.Generator] | None = None,
    callback: RolloutCallback | None = None,
    override_action: OverrideAction | None = None,
    first: int = 0,
    seeds: Tensor | None = None,
) -> EpisodeTable:
    """Plays episodes `first` to `first + episodes - 1`. Environment b of B plays every B-th of them, from the b-th on.

    The policies' edits can read each environment's episode and step (`marlnb.models.hooks.episode_context`).

    Args:
        policies: by group, on one device; in eval mode during the call. Their exploration noise starts from 0 in each
            episode, and continues afterwards as if nothing had been played.
        seed: episode k has the seed `(seed + k) mod 2**31`.
        explore: sample actions; otherwise take the most likely.
        generator: of sampled actions, on the policies' device; one for all groups, or by group.
        callback: called around every step.
        override_action: given the time step, returns actions by group that are taken instead of the policy's. Groups
            that it leaves out keep theirs. Callbacks see the actions that are taken.
        first: number of the first episode.
        seeds: `[env]`, of each environment's first episode, if it is not that of its number (`VectorEnv.reset_each`).
    Raises:
        ConfigError: `episodes` is below 1, or policies and groups do not match.
        EnvError: a reward or an observation is not finite; or no episode has ended for MAX_STEPS steps, in an
            environment that states no limit.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be 1 or more; got {episodes}")
    if set(env.spec.group_names) != set(policies):
        raise ConfigError(f"policies are for {sorted(policies)}; expected the groups {list(env.spec.group_names)}")
    tally = _EpisodeTally(env, episodes, first)
    generators = generator if isinstance(generator, Mapping) else dict.fromkeys(policies, generator)
    actors = {name: _Actor(policies[name], env, explore, generators[name]) for name in env.spec.group_names}
    members = list(policies.values())
    with eval_mode(members), new_noise(members), torch.no_grad(), torch_threads(1):  # a step is too small for threads
        step = env.reset(seed + first) if seeds is None else env.reset_each(seeds)
        tally.start(step)
        while tally.n_left > 0:
            time_step = _choose_actions(env, step, tally, actors)
            if override_action is not None:
                replaced = {
                    name: time_step.output[name]._replace(action=action)
                    for name, action in override_action(time_step).items()
                }
                time_step = replace(time_step, output={**time_step.output, **replaced})
            if callback is not None:
                callback.before_step(time_step)
            step = env.step({name: output.action.to(env.device) for name, output in time_step.output.items()})
            done = step.done.cpu()
            ended = bool(done.any())
            if callback is not None:
                callback.after_step(time_step, step, ended)
            tally.add(step, done if ended else None)
            if ended:
                for actor in actors.values():
                    actor.reset(step.done)
    return tally.table()


class _Actor:
    """A policy with the recurrent state of every environment."""

    def __init__(self, policy: Policy, env: VectorEnv, explore: bool, generator: torch.Generator | None) -> None:
        self.policy, self.explore, self.generator = policy, explore, generator
        self.has_network = next(policy.parameters(), None) is not None
        self.device = device_of(policy, default=env.device)
        self.recurrent = policy.initial_recurrent(env.n_envs, self.device)

    def act(self, observation: Tensor, action_mask: Tensor | None) -> ActorOutput:
        return self.policy.act(
            observation.to(self.device),
            recurrent=self.recurrent,
            action_mask=None if action_mask is None else action_mask.to(self.device),
            explore=self.explore,
            generator=self.generator,
        )

    def reset(self, done: Tensor) -> None:
        """Zeroes the states of environments `[env]` that start an episode."""
        self.policy.begin_episodes(done)
        if self.recurrent is not None:
            self.recurrent = self.recurrent.masked_fill(done.to(self.device)[:, None, None, None], 0.0)


class _EpisodeTally:
    """Lengths and returns of the episodes that count.

    Attributes:
        episode: `[env]`, number of the current episode; -1 if it does not count.
        t: `[env]`, steps since it started.
        episode_seed: `[env]`.
        returns: by group, `[env, agent]`, the sum of rewards since it started.
        n_left: episodes that have not ended yet.
    """

    def __init__(self, env: VectorEnv, episodes: int, first: int) -> None:
        self.env, self.episodes, self.first = env, episodes, first
        self._index = torch.arange(env.n_envs)  # of each environment's episode, counted from 0
        self.t = torch.zeros(env.n_envs, dtype=torch.int64)
        self.returns = {g.name: torch.zeros(env.n_envs, g.n_agents, dtype=torch.float64) for g in env.spec.groups}
        self._length = torch.zeros(episodes, dtype=torch.int64)
        self._seed = torch.zeros(episodes, dtype=torch.int64)
        self._returns = {g.name: torch.zeros(episodes, g.n_agents, dtype=torch.float64) for g in env.spec.groups}
        self.n_left = episodes
        self._n_steps_without_end = 0
        self._number_episodes()

    def start(self, step: Step) -> None:
        self.episode_seed = step.episode_seed.cpu().clone()

    def add(self, step: Step, done: Tensor | None) -> None:
        """Accounts for one step. `done` is `[env]`, or None if no episode ended."""
        self.t = self.t + 1  # a new tensor: callbacks may hold the previous one
        for name, group in step.groups.items():
            check_step(self.env.spec, name, "reward", group.reward, self.t, self.episode_seed)
            self.returns[name] += group.reward.cpu()
        self._n_steps_without_end += 1
        if self._n_steps_without_end > MAX_STEPS and self.env.spec.max_steps is None:
            raise self._endless()
        if done is not None:
            self._finish(done)
            self.episode_seed = step.episode_seed.cpu().clone()

    def table(self) -> EpisodeTable:
        returns = {name: values.numpy() for name, values in self._returns.items()}
        return EpisodeTable(self.env.spec, self._length.numpy(), self._seed.numpy(), returns)

    def _finish(self, done: Tensor) -> None:
        counted = done & (self.episode >= 0)
        rows = self.episode[counted] - self.first
        self._length[rows] = self.t[counted]
        self._seed[rows] = self.episode_seed[counted]
        for name, returns in self.returns.items():
            self._returns[name][rows] = returns[counted]
            returns[done] = 0.0
        self.n_left -= len(rows)
        self._n_steps_without_end = 0 if len(rows) else self._n_steps_without_end
        self.t = self.t.masked_fill(done, 0)
        self._index = self._index + done * self.env.n_envs
        self._number_episodes()

    def _endless(self) -> EnvError:
        name, env_index = self.env.spec.name, int(torch.where(self.episode >= 0, self.t, 0).argmax())
        steps, seed = int(self.t[env_index]), int(self.episode_seed[env_index])
        return EnvError(
            f"{name}: the episode with seed {seed}, in env {env_index}, has not ended after {steps:,} steps, and the "
            "environment states no limit. Set one: env.max_steps=1000 in the experiment, or for this call "
            f"`--env {name} env.max_steps=1000`, in Python env=dataclasses.replace(run.experiment.env, max_steps=1000)"
        )

    def _number_episodes(self) -> None:
        self.episode = (self._index + self.first).masked_fill(self._index >= self.episodes, -1)


def _choose_actions(env: VectorEnv, step: Step, tally: _EpisodeTally, actors: Mapping[str, _Actor]) -> TimeStep:
    """Every group chooses its actions, and its recurrent state moves on."""
    groups = step.groups
    recurrent = {name: actor.recurrent for name, actor in actors.items()}
    for name, actor in actors.items():
        if actor.has_network:
            check_step(env.spec, name, "observation", groups[name].observation, tally.t, tally.episode_seed)
    alive = {name: group.alive for name, group in groups.items()}
    with episode_context.at(tally.episode, tally.t, alive):
        output = {name: actor.act(groups[name].observation, groups[name].action_mask) for name, actor in actors.items()}
    for name, actor in actors.items():
        acting = None if env.spec.simultaneous else groups[name].acting.to(actor.device)
        actor.recurrent = next_recurrent(actor.recurrent, output[name].recurrent, acting)
    return TimeStep(
        episode=tally.episode,
        t=tally.t,
        episode_seed=tally.episode_seed,
        observation={name: group.observation for name, group in groups.items()},
        alive=alive,
        acting={name: group.acting for name, group in groups.items()},
        action_mask={name: group.action_mask for name, group in groups.items()},
        recurrent=recurrent,
        output=output,
        state=step.state,
        returns=tally.returns,
        env=env,
    )
