"""Small ParallelEnvs whose every number is known beforehand; worker processes import this file."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from marlnb.errors import ConfigError, UnknownNameError


class Scripted(ParallelEnv):
    """Three agents: a_2 comes at step 2, a_0 terminates at step 3, a_1 is truncated at 5, a_2 terminates at 6.

    An observation is (steps so far, the agent's number + 1, seed mod 1000); a reward is 10 * number + step.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "scripted"}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["a_0", "a_1", "a_2"]
    ends: ClassVar[dict[int, tuple[str, str]]] = {  # by step
        3: ("a_0", "terminated"),
        5: ("a_1", "truncated"),
        6: ("a_2", "terminated"),
    }

    def __init__(self, keeps_dead: bool = False, action_space: spaces.Space | None = None) -> None:
        self.keeps_dead = keeps_dead
        self._action_space = action_space or spaces.Discrete(3)
        self._observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.received: dict[str, Any] = {}

    def observation_space(self, agent: str) -> spaces.Space:
        return self._observation_space

    def action_space(self, agent: str) -> spaces.Space:
        return self._action_space

    def _see(self, agent: str) -> np.ndarray:
        return np.array([self.t, int(agent[-1]) + 1, self.seed_given % 1000], np.float64)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.t, self.seed_given, self.gone = 0, seed or 0, set()
        self.agents = ["a_0", "a_1"]
        return {agent: self._see(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        self.received = actions
        present = list(self.agents)
        if self.t == 2:
            present.append("a_2")
        agent, how = self.ends.get(self.t, ("", ""))
        flags = {name: {a: a == agent and how == name for a in present} for name in ("terminated", "truncated")}
        self.gone |= {agent} if agent else set()
        if self.keeps_dead:
            flags["terminated"] |= {a: True for a in present if a in self.gone and not flags["truncated"][a]}
        observations = {a: self._see(a) for a in present}
        rewards = {a: 10 * int(a[-1]) + self.t for a in present}
        self.agents = present if self.keeps_dead and self.t < 6 else [a for a in present if a not in self.gone]
        return observations, rewards, flags["terminated"], flags["truncated"], {a: {} for a in present}


class Raising(Scripted):
    """Raises at step 2 of the episode whose seed it was given."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.bad_seed = seed

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        if self.t == 1 and self.seed_given == self.bad_seed:
            raise ZeroDivisionError("the ball is nowhere")
        return super().step(actions)


class Interrupting(Scripted):
    """In the first step of the episode with seed 0 it interrupts the process that waits for it, and takes a while."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        if self.t == 0 and self.seed_given == 0:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(0.3)
        return super().step(actions)


class Hanging(Interrupting):
    """Never comes back from its first step."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        super().step(actions)
        while True:
            time.sleep(0.01)


class InterruptingAtTheEnd(Scripted):
    """When it is closed it interrupts the process that waits for it, and takes a while."""

    def close(self) -> None:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.5)


class Inside(Scripted):
    """Observes the process that it is in: its number, and whether torch is loaded."""

    def _see(self, agent: str) -> np.ndarray:
        return np.array([os.getpid(), "torch" in sys.modules, self.t], np.float64)


class Drawing(Scripted):
    """Observes draws from numpy's and Python's process-wide generators."""

    def _see(self, agent: str) -> np.ndarray:
        return np.array([np.random.random(), random.random(), self.t], np.float64)


class DrawingInSteps(Scripted):
    """Observes draws from Python's process-wide generator, but none in `reset`."""

    def _see(self, agent: str) -> np.ndarray:
        return np.array([random.random() if self.t else 0.0, 0.0, self.t], np.float64)


class DrawingLater(Scripted):
    """Observes draws from Python's process-wide generator from its second episode on."""

    n_episodes = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.n_episodes += 1
        return super().reset(seed, options)

    def _see(self, agent: str) -> np.ndarray:
        return np.array([random.random() if self.n_episodes > 1 else 0.0, 0.0, self.t], np.float64)


class DrawingByTorch(Scripted):
    """Observes draws from torch's generator."""

    def _see(self, agent: str) -> np.ndarray:
        import torch

        return np.array([float(torch.rand(())), 0.0, self.t], np.float64)


class SamplingObservations(Scripted):
    """Observes draws from its observation space."""

    def _see(self, agent: str) -> np.ndarray:
        return np.array([self.observation_space(agent).sample()[0], 0.0, self.t], np.float64)


class Hashing(Scripted):
    """Observes the order of a set of strings."""

    def _see(self, agent: str) -> np.ndarray:
        return np.array([[*{f"name {k}" for k in range(99)}].index("name 3"), 0.0, self.t], np.float64)


class DrawingSometimes(Scripted):
    """Observes draws from Python's process-wide generator in the episodes of odd seeds."""

    def _see(self, agent: str) -> np.ndarray:
        return np.array([random.random() if self.seed_given % 2 else 0.0, 0.0, self.t], np.float64)


class Masked(Scripted):
    """Three choices of which (steps + number) mod 3 is forbidden; at step 1 no agent may choose anything.

    Args:
        where: "observation" or "info": where the mask is.
    """

    def __init__(self, where: str = "observation") -> None:
        super().__init__()
        self.where = where
        box, mask = self._observation_space, spaces.Box(0, 1, (3,), np.int8)
        if where == "observation":
            self._observation_space = spaces.Dict({"observation": box, "action_mask": mask})

    def mask(self, agent: str) -> np.ndarray:
        if self.t == 1:
            return np.zeros(3, np.int8)
        return (np.arange(3) != (self.t + int(agent[-1])) % 3).astype(np.int8)

    def _see(self, agent: str) -> Any:
        seen = super()._see(agent)
        return {"observation": seen, "action_mask": self.mask(agent)} if self.where == "observation" else seen

    def _informed(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {a: {"action_mask": self.mask(a)} for a in infos} if self.where == "info" else infos

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = super().reset(seed)
        return observations, self._informed(infos)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        *rest, infos = super().step(actions)
        return (*rest, self._informed(infos))


class Strict(ParallelEnv):  # type: ignore[type-arg]
    """Two agents for 3 + seed mod 5 steps; of three choices (step + seed) mod 3 is forbidden, and taking it raises."""

    metadata: ClassVar[dict[str, Any]] = {"name": "strict"}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["a_0", "a_1"]

    def observation_space(self, agent: str) -> spaces.Space:
        box, mask = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"observation": box, "action_mask": mask})

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    def _seen(self) -> dict[str, Any]:
        self.forbidden = (self.t + self.seed_given) % 3
        mask = (np.arange(3) != self.forbidden).astype(np.int8)
        return {a: {"observation": np.array([self.t, self.seed_given % 5]), "action_mask": mask} for a in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.t, self.seed_given, self.agents = 0, seed or 0, list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        if self.forbidden in [int(action) for action in actions.values()]:
            raise ValueError(f"choice {self.forbidden} is forbidden at step {self.t}")
        self.t += 1
        seen, over, agents = self._seen(), self.t == 3 + self.seed_given % 5, self.agents
        self.agents = [] if over else agents
        no = dict.fromkeys(agents, False)
        return seen, dict.fromkeys(agents, 1.0), dict.fromkeys(agents, over), no, {agent: {} for agent in agents}


class Mixed(Scripted):
    """Agents whose spaces differ."""

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-1, 1, (int(agent[-1]) + 1,), np.float32)

    def _see(self, agent: str) -> np.ndarray:
        return np.zeros(int(agent[-1]) + 1, np.float32)


class Reshaping(Scripted):
    """Observes another shape than its space says from step 1 on."""

    def __init__(self, n_agents: int) -> None:
        super().__init__()
        self.possible_agents = ["a_0", "a_1", "a_2"][:n_agents]  # type: ignore[misc]

    def _see(self, agent: str) -> np.ndarray:
        return np.zeros(2) if self.t else super()._see(agent)


class Broken(Scripted):
    """Observes another shape than its space says."""

    def _see(self, agent: str) -> np.ndarray:
        return np.zeros(1)


class Breaking(Scripted):
    """Breaks PettingZoo's API in the way that is asked for, in its first step or in `reset`."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed)
        if self.how == "reset without infos":
            return observations
        if self.how == "an unknown agent is reset":
            observations["b_0"] = observations["a_0"]
        return observations, infos

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, terminations, truncations, infos = super().step(actions)
        if self.how == "four parts":
            return observations, rewards, {a: terminations[a] or truncations[a] for a in rewards}, infos
        if self.how == "flags of all":
            return observations, rewards, False, False, infos
        if self.how == "a reward less" or (self.how == "a last reward less" and self.t == 3):
            del rewards["a_1"]
        if self.how == "an unknown agent sees":
            observations["b_0"] = observations["a_0"]
        if self.how == "flags as RLlib's":
            terminations, truncations = {"__all__": False}, {"__all__": self.t == 3}
        if self.how == "a flag less":
            del truncations["a_1"]
        if self.how == "rewards of two":
            rewards["a_1"] = np.zeros(2)
        return observations, rewards, terminations, truncations, infos


class Picky(Scripted):
    """Raises one of marlnb's own errors in its second `reset`."""

    resets = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.resets += 1
        if self.resets == 2:
            raise UnknownNameError("no level 'seven'")
        return super().reset(seed)


class Unseeded(Scripted):
    """Its `reset` takes nothing, as before PettingZoo 1.22."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


def passing_on(speed: int = 1, **kwargs: Any) -> Scripted:
    """As PettingZoo's `parallel_env`: what it does not take itself it hands on."""
    return Scripted(**kwargs)


def in_need(size: int, *, colour: str, speed: int = 1) -> Scripted:
    return Scripted()


def misconfigured(**kwargs: Any) -> Scripted:
    raise ConfigError("the two sizes exclude one another")


class Screens(ParallelEnv):  # type: ignore[type-arg]
    """Two agents, each with a noisy image of its own that nothing changes."""

    metadata: ClassVar[dict[str, Any]] = {"name": "screens"}
    possible_agents = ("eye_0", "eye_1")

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        self.agents = list(self.possible_agents)

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 255, self.shape, np.uint8)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.agents, self.drawn, self.t = list(self.possible_agents), np.random.default_rng(seed), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.t += 1
        here, seen = list(self.agents), self._seen()
        self.agents = [] if self.t == 5 else here
        over, infos = dict.fromkeys(here, self.t == 5), {agent: {} for agent in here}
        return seen, dict.fromkeys(here, 1.0), dict.fromkeys(here, False), over, infos

    def _seen(self) -> dict[str, np.ndarray]:
        return {agent: self.drawn.integers(0, 256, self.shape, np.uint8) for agent in self.possible_agents}
