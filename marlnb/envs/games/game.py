"""Game: copies of a small game as a VectorEnv; a subclass gives its rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from marlnb.envs.games.config import GameConfig
from marlnb.envs.mpe.draws import uniform
from marlnb.envs.vector import Step, VectorEnv, allocate_step, episode_seeds
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import EnvSpec


class Outcome(NamedTuple):
    """What one step did: reward `[env, agent]` float32; whose episode ended, and whose was cut, `[env, agent]` bool.

    What is said of agents that were not alive is ignored.
    """

    reward: Tensor
    terminated: Tensor
    truncated: Tensor


class Game(VectorEnv):
    """B copies of a game of one group of agents. An episode is a function of its seed and the actions alone.

    Attributes:
        clock: `[env]` int64, steps made in the present episode.
        alive: `[env, agent]` bool.
        memory: what else the rules remember, each `[env, ...]`.
        n_draws: uniform numbers that an episode begins with.
    """

    n_draws: int = 0

    def __init__(self, config: GameConfig, spec: EnvSpec, n_envs: int, device: str = "cpu") -> None:
        if n_envs < 1:
            raise EnvBuildError(f"{config.name} needs at least one copy; asked for n_envs={n_envs}")
        self.spec, self.n_envs, self.device = spec, n_envs, torch.device(device)
        (self.group,) = spec.groups
        self._step = allocate_step(spec, n_envs, self.device)
        self._seed = 0
        self._started = False
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self.clock = torch.zeros_like(self._episode)
        self.alive = torch.ones(n_envs, self.group.n_agents, dtype=torch.bool, device=self.device)
        self.memory: dict[str, Tensor] = self.remember()

    @abstractmethod
    def remember(self) -> dict[str, Tensor]:
        """Zeroed memory, each `[env, ...]`, on the game's device."""

    @abstractmethod
    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        """Sets the memory of the copies `[env]` bool that begin an episode; drawn `[n_draws, env]`, in [0, 1)."""

    @abstractmethod
    def play(self, action: Tensor) -> Outcome:
        """One step of every copy: `action` as the group's ActionSpec says; `clock` has not counted it yet."""

    @abstractmethod
    def look(self) -> Tensor:
        """What every agent sees now, `[env, agent, feature]`; rows of agents that are not alive are ignored."""

    def asked(self) -> Tensor:
        """Who, if alive, is asked for an action now, `[env, agent]` bool."""
        return self.alive

    def reset(self, seed: int) -> Step:
        self._seed = int(seed)
        self._started = True
        self._episode.zero_()
        group = self._step.groups[self.group.name]
        for tensor in (self._step.done, group.reward, group.terminated, group.truncated, group.final_observation):
            tensor.zero_()
        if self._step.final_state is not None:
            self._step.final_state.zero_()
        self._begin(torch.ones_like(self._step.done))
        return self._show()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if not self._started:
            raise EnvError(f"{self.spec.name} was stepped before its first reset(seed)")
        action, shape = actions.get(self.group.name), (*self.alive.shape, *self.group.action.shape)
        if action is None or tuple(action.shape) != shape:
            found = {name: list(value.shape) for name, value in actions.items()}
            raise EnvError(
                f"{self.spec.name} needs actions of shapes {{{self.group.name!r}: {list(shape)}}}; got {found}"
            )
        outcome, was, rows = self.play(action), self.alive, self._step.groups[self.group.name]
        rows.reward.copy_(outcome.reward * was)
        rows.terminated.copy_(outcome.terminated & was)
        rows.truncated.copy_(outcome.truncated & was & ~rows.terminated)
        self.clock += 1
        self.alive = was & ~(rows.terminated | rows.truncated)
        torch.logical_not(self.alive.any(1), out=self._step.done)
        seen = self.look() * was[..., None]
        rows.final_observation.copy_(seen)
        if self._step.final_state is not None:
            self._step.final_state.copy_(seen.flatten(1))
        if bool(self._step.done.any()):
            self._episode += self._step.done
            self._begin(self._step.done)
        return self._show()

    def state_dict(self) -> dict[str, Tensor]:
        """Every copy's memory, clock and episode number, copied."""
        own = {"clock": self.clock, "alive": self.alive, "episode": self._episode, "seed": torch.tensor(self._seed)}
        return {name: value.clone() for name, value in {**own, **self._memories()}.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        if state["alive"].shape != self.alive.shape:
            raise EnvError(
                f"{self.spec.name}: the saved state is of {tuple(state['alive'].shape)} copies and agents, "
                f"this environment has {tuple(self.alive.shape)}"
            )
        self._seed, self._started = int(state["seed"]), True
        self._episode.copy_(state["episode"])
        self.clock.copy_(state["clock"])
        self.alive = state["alive"].to(self.device).clone()
        for name, value in self._memories().items():
            value.copy_(state[name])
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
        return self._show()

    def _memories(self) -> dict[str, Tensor]:
        return {f"memory_{name}": value for name, value in self.memory.items()}

    def _begin(self, copies: Tensor) -> None:
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
        self.clock.masked_fill_(copies, 0)
        self.alive = self.alive | copies[:, None]
        self.begin(copies, uniform(self._step.episode_seed, self.n_draws))

    def _show(self) -> Step:
        rows = self._step.groups[self.group.name]
        rows.alive.copy_(self.alive)
        torch.logical_and(self.asked(), self.alive, out=rows.acting)
        rows.observation.copy_(self.look() * self.alive[..., None])
        if self._step.state is not None:
            self._step.state.copy_(rows.observation.flatten(1))
        return self._step
