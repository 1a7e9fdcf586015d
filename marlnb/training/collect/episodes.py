"""Whole episodes under policies: the loop that evaluation and recording share.

Exactly the episodes that were asked for count, whatever their lengths, and episode k runs under `seed + k`: taking
whichever episodes end first would favour short ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import ConfigError
from marlnb.models.hooks import episode_context as clock
from marlnb.models.policies.policy import ActorOutput, Policy
from marlnb.specs import EnvSpec
from marlnb.training.collect.rollout import carried
from marlnb.training.collect.threads import torch_threads

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class TimeStep:
    """One moment of all copies: what the agents see and what they have just chosen, the environment not yet stepped.

    Its tensors are the environment's own buffers, valid until it steps.

    Attributes:
        episode: `[env]` int64, the number of the copy's episode; -1 where it does not count.
        t: `[env]` int64, steps since that episode began.
        episode_seed: `[env]` int64.
        observation, alive, acting, action_mask, recurrent: by group, as in `GroupStep`; recurrent is the actor's state
            that enters the step, `[env, agent, layer, unit]`. Masks and states are None where there are none.
        output: by group, what the policy gave.
        state: `[env, *state_shape]`, None where the environment has none.
        returns: by group, `[env, agent]` float64: the sum of rewards since the episode began, up to now.
        labels: `VectorEnv.labels()`, asked for when first read; not to be read after the step.
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
    _told: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def labels(self) -> Mapping[str, Tensor]:
        if not self._told:
            self._told.update(self.env.labels())
        return self._told


class Rest(NamedTuple):
    """What a callback need not be told of: a call that does nothing costs as much as one that does a little.

    Attributes:
        steps: so many of the next, which it may be told of all the same; where an episode ends it is told after that
            step, though it was not before it.
        before: the moment before the next step that it is told of. It is not told of that.
    """

    steps: int = 0
    before: bool = False


TOLD_ALL = Rest()


class RolloutCallback(Protocol):
    """Someone who sees the moments of `play`. Tensors are valid during the call only."""

    def before_step(self, time_step: TimeStep) -> None:
        """Called when the actions are chosen and the environment stands where they will be taken."""

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> Rest | None:
        """Called after the step; the moment's buffers of observations and masks have been overwritten by it.

        Args:
            ended: some copy's episode has, with this step.
        Returns:
            what it need not be told of; None: it is to be told of everything.
        """


@dataclass(frozen=True)
class EpisodeTable:
    """Episodes 0 to n-1, in order.

    Attributes:
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

    def group_return(self, group: str) -> np.ndarray:
        """`[episode]`: the mean over the group's agents."""
        self.spec.group(group)
        return np.asarray(self.returns[group].mean(axis=1))

    def to_json(self) -> dict[str, list[float | None]]:
        """By group, `group_return` of each episode as plain JSON; None where it is not finite."""
        return {
            group: [value if math.isfinite(value) else None for value in self.group_return(group).tolist()]
            for group in self.spec.group_names
        }

    def to_frame(self) -> pd.DataFrame:
        """One row an episode: seed, length and the return of each agent by its name."""
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
    generator: torch.Generator | None = None,
    callback: RolloutCallback | None = None,
    first: int = 0,
) -> EpisodeTable:
    """Plays episodes 0 to `episodes` - 1; copy b plays b, b + B, b + 2 B and so on.

    The policies' edits are told which episode each copy plays, and at which step (`marlnb.models.hooks.episode_context`).

    Args:
        policies: by group, on one device; put into eval mode meanwhile.
        seed: episode k runs under `(seed + k) mod 2**31`.
        explore: sample actions; otherwise take the most likely.
        generator: of the actions that are sampled, on the policies' device.
        first: the number of the first episode: `first` to `first + episodes - 1` are played.
    Raises:
        ConfigError: `episodes` is below 1, or a group has no policy.
    """
    if episodes < 1:
        raise ConfigError(f"the number of episodes must be 1 or more; got {episodes}")
    missing = sorted(set(env.spec.group_names) ^ set(policies))
    if missing:
        raise ConfigError(f"policies are for {sorted(policies)}, the groups are {list(env.spec.group_names)}")
    tally = _Tally(env, episodes, first)
    actors = {name: _Actor(policies[name], env, explore, generator) for name in env.spec.group_names}
    rests, unseen = TOLD_ALL  # what the callback need not be told of
    with _eval_mode(policies), torch.no_grad(), torch_threads(1):  # one step is little work: more threads only wait
        step = env.reset(seed + first)
        tally.begin(step)
        while tally.playing:
            time_step = _moment(env, step, tally, actors)
            if callback is not None and not (rests or unseen):
                callback.before_step(time_step)
            step = env.step({name: output.action.to(env.device) for name, output in time_step.output.items()})
            done = step.done.cpu()
            ended = bool(done.any())
            if rests and not ended:
                rests -= 1
            elif callback is not None:
                rests, unseen = callback.after_step(time_step, step, ended) or TOLD_ALL
            tally.add(step, done if ended else None)
            if ended:
                for actor in actors.values():
                    actor.forget(step.done)
    return tally.table(seed)


class _Actor:
    """A policy with the recurrent state of every copy."""

    def __init__(self, policy: Policy, env: VectorEnv, explore: bool, generator: torch.Generator | None) -> None:
        self.policy = policy
        self.explore = explore
        self.generator = generator
        self.device = next((tensor.device for tensor in (*policy.parameters(), *policy.buffers())), env.device)
        self.recurrent = policy.initial_recurrent(env.n_envs, self.device)

    def act(self, observation: Tensor, action_mask: Tensor | None) -> ActorOutput:
        return self.policy.act(
            observation.to(self.device),
            recurrent=self.recurrent,
            action_mask=None if action_mask is None else action_mask.to(self.device),
            explore=self.explore,
            generator=self.generator,
        )

    def forget(self, done: Tensor) -> None:
        if self.recurrent is not None:
            self.recurrent = self.recurrent.masked_fill(done.to(self.device)[:, None, None, None], 0.0)


class _Tally:
    """Lengths and returns of the episodes that count."""

    def __init__(self, env: VectorEnv, episodes: int, first: int) -> None:
        self.env, self.episodes, self.first = env, episodes, first
        copies = torch.arange(env.n_envs)
        self._number = copies.clone()
        self.t = torch.zeros(env.n_envs, dtype=torch.int64)
        self.sums = {g.name: torch.zeros(env.n_envs, g.n_agents, dtype=torch.float64) for g in env.spec.groups}
        self._length = torch.zeros(episodes, dtype=torch.int64)
        self._seed = torch.zeros(episodes, dtype=torch.int64)
        self._returns = {g.name: torch.zeros(episodes, g.n_agents, dtype=torch.float64) for g in env.spec.groups}
        self._left = episodes
        self._count()

    @property
    def playing(self) -> bool:
        return self._left > 0

    def begin(self, step: Step) -> None:
        self.episode_seed = step.episode_seed.cpu().clone()

    def add(self, step: Step, done: Tensor | None) -> None:
        """done: `[env]`; None where no episode has ended."""
        self.t = self.t + 1
        for name, group in step.groups.items():
            self.sums[name] += group.reward.cpu()
        if done is not None:
            self._finish(done)
            self.episode_seed = step.episode_seed.cpu().clone()

    def table(self, seed: int) -> EpisodeTable:
        returns = {name: values.numpy() for name, values in self._returns.items()}
        return EpisodeTable(self.env.spec, self._length.numpy(), self._seed.numpy(), returns)

    def _finish(self, done: Tensor) -> None:
        counted = done & (self.episode >= 0)
        numbers = self.episode[counted] - self.first
        self._length[numbers] = self.t[counted]
        self._seed[numbers] = self.episode_seed[counted]
        for name, sums in self.sums.items():
            self._returns[name][numbers] = sums[counted]
            sums[done] = 0.0
        self._left -= len(numbers)
        self.t = self.t.masked_fill(done, 0)
        self._number = self._number + done * self.env.n_envs
        self._count()

    def _count(self) -> None:
        self.episode = (self._number + self.first).masked_fill(self._number >= self.episodes, -1)


def _moment(env: VectorEnv, step: Step, tally: _Tally, actors: Mapping[str, _Actor]) -> TimeStep:
    groups = step.groups
    recurrent = {name: actor.recurrent for name, actor in actors.items()}
    with clock.at(tally.episode, tally.t):
        output = {name: actor.act(groups[name].observation, groups[name].action_mask) for name, actor in actors.items()}
    time_step = TimeStep(
        episode=tally.episode,
        t=tally.t,
        episode_seed=tally.episode_seed,
        observation={name: group.observation for name, group in groups.items()},
        alive={name: group.alive for name, group in groups.items()},
        acting={name: group.acting for name, group in groups.items()},
        action_mask={name: group.action_mask for name, group in groups.items()},
        recurrent=recurrent,
        output=output,
        state=step.state,
        returns=tally.sums,
        env=env,
    )
    for name, actor in actors.items():
        acting = None if env.spec.simultaneous else groups[name].acting.to(actor.device)
        actor.recurrent = carried(actor.recurrent, output[name].recurrent, acting)
    return time_step


@contextmanager
def _eval_mode(policies: Mapping[str, Policy]) -> Iterator[None]:
    modes = {name: policy.training for name, policy in policies.items()}
    for policy in policies.values():
        policy.eval()
    try:
        yield
    finally:
        for name, policy in policies.items():
            policy.train(modes[name])
