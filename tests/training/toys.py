"""A tiny environment whose every number follows from the episode's seed and the step: tests know the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.envs.vector import Step, VectorEnv, allocate_step, episode_seeds
from marlnb.experiment import Experiment
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec


@ENVIRONMENTS.register("toy/count")
@dataclass(frozen=True)
class CountConfig(EnvConfig):
    """Episode of seed s: 2 + s % 7 steps; agent i earns s % 5 + i a step; observations are (t, s % 7)."""

    savable: bool = option(True, help="whether its state can be saved")
    mortal: bool = option(False, help="whether a_1 dies at its second step and b_0 appears then")
    fail_at: int = option(0, help="the step since reset that raises; 0: none", ge=0)
    nan_at: int = option(0, help="the step since reset from which rewards are NaN; 0: none", ge=0)

    def build(self, n_envs: int, device: str = "cpu") -> Count:
        return Count(self, n_envs)


class Count(VectorEnv):
    closed = 0

    def __init__(self, config: CountConfig, n_envs: int) -> None:
        self.config, self.n_envs, self.device = config, n_envs, torch.device("cpu")
        observation, action = ObservationSpec((2,)), ActionSpec("discrete", (3,))
        groups = (GroupSpec("a", ("a_0", "a_1"), observation, action), GroupSpec("b", ("b_0",), observation, action))
        self.spec = EnvSpec("toy/count", groups)
        self._step = allocate_step(self.spec, n_envs, "cpu")
        self.taken = 0

    def reset(self, seed: int) -> Step:
        self.seed, self.number = seed, torch.zeros(self.n_envs, dtype=torch.int64)
        self.t = self.number.clone()
        self._step = allocate_step(self.spec, self.n_envs, "cpu")
        return self._show()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        self.taken += 1
        if self.taken == self.config.fail_at:
            raise RuntimeError("the toy broke")
        seeds = episode_seeds(self.seed, self.number)
        living = {name: group.alive.clone() for name, group in self._step.groups.items()}
        self.t = self.t + 1
        done = self.t >= 2 + seeds % 7
        for name, group in self._step.groups.items():
            group.reward.copy_(((seeds % 5)[:, None] + torch.arange(group.reward.shape[1])) * living[name])
            if self.config.nan_at and self.taken >= self.config.nan_at:
                group.reward.fill_(torch.nan)
            group.truncated.copy_(done[:, None] & living[name])
            group.terminated.zero_()
            if self.config.mortal and name == "a":
                dies = (self.t == 2) & living[name][:, 1]
                group.terminated[:, 1] = dies
                group.truncated[:, 1] &= ~dies
            group.final_observation[..., 0] = self.t[:, None]
            group.final_observation[..., 1] = (seeds % 7)[:, None]
        self._step.done.copy_(done)
        self.number = self.number + done
        self.t = self.t.masked_fill(done, 0)
        return self._show()

    def state_dict(self) -> dict[str, Tensor] | None:
        if not self.config.savable:
            return None
        return {"seed": torch.tensor(self.seed), "number": self.number, "t": self.t}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        self.seed, self.number, self.t = int(state["seed"]), state["number"].clone(), state["t"].clone()
        return self._show()

    def close(self) -> None:
        Count.closed += 1

    def _show(self) -> Step:
        seeds = episode_seeds(self.seed, self.number)
        for name, group in self._step.groups.items():
            if self.config.mortal:
                group.alive[:, -1] = self.t < 2 if name == "a" else self.t >= 2
                group.acting.copy_(group.alive)
            group.observation[..., 0] = self.t[:, None] * group.alive
            group.observation[..., 1] = (seeds % 7)[:, None] * group.alive
        self._step.episode_seed.copy_(seeds)
        return self._step


def count_experiment(*overrides: str) -> Experiment:
    """IPPO on the toy: 4 copies, 8 steps, small nets, one thread."""
    return Experiment.compose(
        *("env=toy/count", "algorithm=ippo", "algorithm.epochs=1", "algorithm.minibatch_frames=16", "model=mlp"),
        *("n_envs=4", "rollout_steps=8", "frames=640", "threads=1", "checkpoint_every=3", *overrides),
    )
