"""ParallelEnvs that do what they should not, each in the way that is asked for; worker processes import this file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from tests.envs.sample_envs import Scripted
from tests.envs.sample_turns import Rates

NESTED = spaces.Dict(
    {
        "sizes": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (3, 3), np.float32)]),
        "deep": spaces.Dict({"door": spaces.Discrete(3, start=1), "keys": spaces.MultiDiscrete([2, 3])}),
    }
)


class Nested(Scripted):
    """Observes a Dict with a ragged Tuple; at step 2 a part is as `wrong` says."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong
        self._observation_space = NESTED  # type: ignore[assignment]

    def _see(self, agent: str) -> Any:
        sizes: list[Any] = [np.full(2, self.t / 10, np.float32), np.full((3, 3), int(agent[-1]), np.float32)]
        deep = {"door": 1 + self.t % 3, "keys": np.array([self.t % 2, 2])}
        if self.t == 2 and agent == "a_1":
            if self.wrong == "shapes":
                sizes = [np.zeros(3), np.zeros((2, 4))]  # as many numbers in all
            if self.wrong == "parts":
                sizes = sizes[:1]
            if self.wrong == "choice":
                deep["door"] = 0
            if self.wrong == "key":
                del deep["keys"]
        return {"sizes": tuple(sizes), "deep": deep}


class Sometimes(Scripted):
    """Two agents that observe what is asked for at one step, instead of three numbers."""

    possible_agents: ClassVar[list[str]] = ["a_0", "a_1"]

    def __init__(self, what: str, step: int) -> None:
        super().__init__()
        self.what, self.step_at = what, step

    def _see(self, agent: str) -> Any:
        if self.t != self.step_at:
            return super()._see(agent)
        return {
            "one number": np.zeros(1),
            "a scalar": 0.5,
            "two rows": np.zeros((2, 3)),
            "words": np.array(["a", "b", "c"]),
            "none": None,
            "a list": [1.0, 2.0, 3.0],
        }[self.what]


class NotFinite(Scripted):
    """a_1 gets NaN or infinity in a step of the episodes with one seed, and of all seeds if that is -1."""

    def __init__(
        self, what: str, infinite: bool = False, step: int = 4, seed: int = -1, continuous: bool = False
    ) -> None:
        super().__init__(action_space=spaces.Box(-1, 1, (1,), np.float32) if continuous else None)
        self.what, self.value, self.step_at, self.bad_seed = what, np.inf if infinite else np.nan, step, seed

    def _is_due(self, agent: str) -> bool:
        return agent == "a_1" and self.t == self.step_at and self.bad_seed in (-1, self.seed_given)

    def _see(self, agent: str) -> np.ndarray:
        seen = super()._see(agent)
        if self.what == "observation" and self._is_due(agent):
            seen[1] = self.value
        return seen

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        observations, rewards, *rest = super().step(actions)
        if self.what == "reward" and self._is_due("a_1"):
            rewards["a_1"] = self.value
        return observations, rewards, *rest


class Rude(Scripted):
    """Does to its process what `how` says. What it started is written to the file `log`, a process number a line."""

    def __init__(self, how: str, log: str = "") -> None:
        super().__init__()
        self.how, self.log = how, log
        if how == "changes directory":
            os.chdir("/")

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.how == "starts processes":
            child = subprocess.Popen(["sleep", "1000"])
            self._note(child.pid)
        if self.how == "forks" and (child_pid := os.fork()) == 0:
            time.sleep(1000)
            os._exit(0)
        elif self.how == "forks":
            self._note(child_pid)
        if self.how == "sets handlers":
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        return super().reset(seed)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        if self.how == "changes directory":
            assert os.getcwd() == "/"  # its own folder is where it left it
        if self.how == "exits" and self.t == 1:
            sys.exit(3)
        if self.how == "dies" and self.t == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "forks" and self.t == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "prints":
            print("printed " * 10_000)
        return super().step(actions)

    def _note(self, number: int) -> None:
        with Path(self.log).open("a") as file:
            file.write(f"{number}\n")


class Thousandth(Scripted):
    """Raises in its 1,000th step, of an episode that does not end before."""

    ends: ClassVar[dict[int, tuple[str, str]]] = {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        if self.t == 999:
            raise ArithmeticError("the simulator lost its balance")
        return super().step(actions)


class Slow(Scripted):
    """Its first reset, from which spaces are read, is quick; the others take `reset_s` seconds."""

    def __init__(self, reset_s: float) -> None:
        super().__init__()
        self.reset_s, self.was_reset = reset_s, False

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.was_reset:
            time.sleep(self.reset_s)
        self.was_reset = True
        return super().reset(seed)


class Reusing(Rates):
    """Returns the same array for an agent each time, and has written to it by the next step, also for who waits."""

    def _seen(self) -> dict[str, np.ndarray]:
        seen = super()._seen()
        self._arrays = getattr(self, "_arrays", {agent: np.zeros(2, np.float32) for agent in self.possible_agents})
        for array in self._arrays.values():
            array[:] = self.t, 1000
        return {agent: self._arrays[agent] for agent in seen}


class Pictures(ParallelEnv):  # type: ignore[type-arg]
    """An image of bytes, which is as `what` says instead: in [0, 1], too large, or whole numbers in floats."""

    metadata: ClassVar[dict[str, Any]] = {"name": "pictures"}
    possible_agents: ClassVar[list[str]] = ["eye_0"]

    def __init__(self, what: str) -> None:
        self.what, self.agents, self.t = what, ["eye_0"], 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 255, (4, 5, 3), np.uint8)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def _see(self) -> dict[str, np.ndarray]:
        value: Any = {"normalised": 0.5, "large": 256, "negative": -1, "whole": 200.0, "bytes": np.uint8(7)}[self.what]
        return {"eye_0": np.full((4, 5, 3), value)}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.t = ["eye_0"], 0
        return self._see(), {"eye_0": {}}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        over = self.t == 3
        self.agents = [] if over else ["eye_0"]
        return self._see(), {"eye_0": 1.0}, {"eye_0": over}, {"eye_0": False}, {"eye_0": {}}


class Named(Scripted):
    """Agents with other names, in the same order; it ends after six steps, or never."""

    ends: ClassVar[dict[int, tuple[str, str]]] = {}

    def __init__(self, names: tuple[str, ...], endless: bool = False) -> None:
        super().__init__()
        self.possible_agents = list(names)  # type: ignore[misc]
        self.endless = endless

    def _see(self, agent: str) -> np.ndarray:
        return np.array([self.t, self.possible_agents.index(agent), self.seed_given % 1000], np.float64)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.t, self.seed_given, self.agents = 0, seed or 0, list(self.possible_agents)
        return {agent: self._see(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        agents, over = list(self.agents), self.t == 6 and not self.endless
        observations, rewards = {a: self._see(a) for a in agents}, dict.fromkeys(agents, 1.0)
        self.agents = [] if over else agents
        return observations, rewards, dict.fromkeys(agents, over), dict.fromkeys(agents, False), {a: {} for a in agents}
