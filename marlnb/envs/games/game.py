"""Game: a small game as a VectorEnv; a subclass defines its rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.mpe.draws import uniform
from marlnb.envs.vector import Step, VectorEnv, allocate_step, check_n_envs, episode_seeds, seed_bases
from marlnb.errors import EnvError
from marlnb.specs import EnvSpec


class Outcome(NamedTuple):
    """The result of one step; entries of agents that were not alive are ignored.

    Attributes:
        reward: `[env, agent]` float32.
        terminated: `[env, agent]` bool.
        truncated: `[env, agent]` bool.
    """

    reward: Tensor
    terminated: Tensor
    truncated: Tensor


class Game(VectorEnv):
    """B envs of a game with one group of agents. An episode is a function of its seed and the actions alone.

    Attributes:
        clock: `[env]` int64, steps made in the current episode.
        alive: `[env, agent]` bool.
        memory: the other state of the rules, each `[env, ...]`.
        n_draws: how many uniform random numbers each episode draws at its start.
    """

    resets_each = True
    state_axis = 0
    n_draws: int = 0

    def __init__(self, config: EnvConfig, spec: EnvSpec, n_envs: int, device: str = "cpu") -> None:
        check_n_envs(config.name, n_envs)
        self.spec, self.n_envs, self.device = spec, n_envs, torch.device(device)
        (self.group,) = spec.groups
        self._step = allocate_step(spec, n_envs, self.device)
        self._seed: int | Tensor = 0
        self._started = False
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self.clock = torch.zeros_like(self._episode)
        self.alive = torch.ones(n_envs, self.group.n_agents, dtype=torch.bool, device=self.device)
        self.memory: dict[str, Tensor] = self.initial_memory()

    def initial_memory(self) -> dict[str, Tensor]:
        """The memory before the first episode, each `[env, ...]`, on the game's device."""
        return {}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        """Sets the memory of envs that start an episode.

        Args:
            starting: `[env]` bool, the envs that start an episode.
            drawn: `[n_draws, env]`, uniform in [0, 1).
        """

    @abstractmethod
    def play(self, action: Tensor) -> Outcome:
        """One step of every env: `action` as the group's ActionSpec states; `clock` does not count this step yet."""

    @abstractmethod
    def observe(self) -> Tensor:
        """Every agent's observation now, `[env, agent, feature]`; rows of agents that are not alive are ignored."""

    def asked_to_act(self) -> Tensor:
        """`[env, agent]` bool: the agents that act now, if they are alive."""
        return self.alive

    def allowed(self) -> Tensor:
        """`[env, agent, n_logits]` bool: the actions that are allowed now; for games with an action mask.

        Agents that wait may choose anything.
        """
        raise NotImplementedError

    def reset(self, seed: int) -> Step:
        return self._reset(int(seed))

    def reset_each(self, seeds: Tensor) -> Step:
        return self._reset(seed_bases(seeds, self.n_envs, self.device))

    def _reset(self, seed: int | Tensor) -> Step:
        self._seed = seed
        self._started = True
        self._episode.zero_()
        group = self._step.groups[self.group.name]
        for tensor in (self._step.done, group.reward, group.terminated, group.truncated, group.final_observation):
            tensor.zero_()
        if self._step.final_state is not None:
            self._step.final_state.zero_()
        self._begin(torch.ones_like(self._step.done))
        return self._write_step()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if not self._started:
            raise EnvError(f"{self.spec.name} was stepped before its first reset(seed)")
        action, shape = actions.get(self.group.name), (*self.alive.shape, *self.group.action.shape)
        if action is None or tuple(action.shape) != shape:
            got = {name: list(value.shape) for name, value in actions.items()}
            raise EnvError(
                f"{self.spec.name} needs actions of shapes {{{self.group.name!r}: {list(shape)}}}; got {got}"
            )
        outcome, was_alive, rows = self.play(action), self.alive, self._step.groups[self.group.name]
        rows.reward.copy_(outcome.reward * was_alive)
        rows.terminated.copy_(outcome.terminated & was_alive)
        rows.truncated.copy_(outcome.truncated & was_alive & ~rows.terminated)
        self.clock += 1
        self.alive = was_alive & ~(rows.terminated | rows.truncated)
        torch.logical_not(self.alive.any(1), out=self._step.done)
        final = self.observe() * was_alive[..., None]
        rows.final_observation.copy_(final)
        if rows.final_action_mask is not None and bool(rows.truncated.any()):
            rows.final_action_mask.copy_(self.allowed())
        if self._step.final_state is not None:
            self._step.final_state.copy_(final.flatten(1))
        if bool(self._step.done.any()):
            self._episode += self._step.done
            self._begin(self._step.done)
        return self._write_step()

    def state_dict(self) -> dict[str, Tensor]:
        """Every env's memory, clock and episode number, copied."""
        state = {"clock": self.clock, "alive": self.alive, "episode": self._episode}
        state["seed"] = torch.as_tensor(self._seed)
        return {name: value.clone() for name, value in {**state, **self._memories()}.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        if state["alive"].shape != self.alive.shape:
            raise EnvError(
                f"{self.spec.name}: the saved state has {tuple(state['alive'].shape)} envs and agents; "
                f"this environment has {tuple(self.alive.shape)}"
            )
        self._seed = state["seed"].to(self.device).clone() if state["seed"].ndim else int(state["seed"])
        self._started = True
        self._episode.copy_(state["episode"])
        self.clock.copy_(state["clock"])
        self.alive = state["alive"].to(self.device).clone()
        for name, value in self._memories().items():
            value.copy_(state[name])
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode, self.episode_stride))
        return self._write_step()

    def _memories(self) -> dict[str, Tensor]:
        return {f"memory_{name}": value for name, value in self.memory.items()}

    def _begin(self, starting: Tensor) -> None:
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode, self.episode_stride))
        self.clock.masked_fill_(starting, 0)
        self.alive = self.alive | starting[:, None]
        self.begin(starting, uniform(self._step.episode_seed, self.n_draws))

    def _write_step(self) -> Step:
        rows = self._step.groups[self.group.name]
        rows.alive.copy_(self.alive)
        torch.logical_and(self.asked_to_act(), self.alive, out=rows.acting)
        rows.observation.copy_(self.observe() * self.alive[..., None])
        if rows.action_mask is not None:
            rows.action_mask.copy_(self.allowed())
        if self._step.state is not None:
            self._step.state.copy_(rows.observation.flatten(1))
        return self._step
