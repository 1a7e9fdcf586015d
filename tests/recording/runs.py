"""Run folders with untrained policies, and a small environment whose every number is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.algorithms.configs.ppo import IPPOConfig, MAPPOConfig
from marlnb.config import ENVIRONMENTS, AlgorithmConfig, EnvConfig, ModelConfig, option
from marlnb.envs.vector import Step, VectorEnv, allocate_step, episode_seeds
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, LabelSpec, ObservationSpec
from marlnb.training.learners import build_learners
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run


def make_run(
    path: Path,
    env: EnvConfig,
    model: ModelConfig | None = None,
    critic: ModelConfig | None = None,
    *,
    centralised: bool = True,
    algorithm: AlgorithmConfig | None = None,
    models: Mapping[str, ModelConfig] | None = None,
    seed: int = 0,
) -> Run:
    """A run folder whose one checkpoint holds policies as they are before training, biases made other than zero."""
    algorithm = algorithm or (MAPPOConfig() if centralised else IPPOConfig())
    experiment = Experiment(
        env=env, algorithm=algorithm, model=model or MLPConfig(), critic=critic, models=models or {}, seed=seed
    )
    run = Run.create(path, experiment)
    learners = build_learners(experiment, run.spec, "cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for learner in learners.values():
            for parameter in learner.policy.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
    save_checkpoint(run.path / "checkpoints", state, iteration=7, frames=0, returns={})
    return run


@ENVIRONMENTS.register("toy/lives")
@dataclass(frozen=True)
class LivesConfig(EnvConfig):
    """Episode of seed s: `shortest` + s % 7 steps; a_1 dies at its third step; b_0 acts on even steps only."""

    shortest: int = option(3, help="steps of the shortest episode", ge=3)
    says_length: bool = option(False, help="whether the spec tells the longest episode")
    fail_at: int = option(0, help="the step since reset that raises; 0: none", ge=0)

    def build(self, n_envs: int, device: str = "cpu") -> Lives:
        return Lives(self, n_envs)


class Lives(VectorEnv):
    """Observations are (seed, t, agent) / 10, rewards t + agent; nothing depends on actions."""

    def __init__(self, config: LivesConfig, n_envs: int) -> None:
        self.config, self.n_envs, self.device = config, n_envs, torch.device("cpu")
        observation_spec = ObservationSpec((3,), names=("seed", "t", "agent"))
        groups = (
            GroupSpec("a", ("a_0", "a_1", "a_2"), observation_spec, ActionSpec("discrete", (4,)), has_action_mask=True),
            GroupSpec("b", ("b_0",), observation_spec, ActionSpec("continuous", low=(-1.0, -2.0), high=(1.0, 2.0))),
        )
        labels = (LabelSpec("odd", classes=("even", "odd")), LabelSpec("height", "a"))
        longest = config.shortest + 6 if config.says_length else None
        self.spec = EnvSpec("toy/lives", groups, state_shape=(2,), max_steps=longest, labels=labels)

    def reset(self, seed: int) -> Step:
        self.seed, self.taken = seed, 0
        self.number = torch.zeros(self.n_envs, dtype=torch.int64)
        self.t = self.number.clone()
        self._step = allocate_step(self.spec, self.n_envs, "cpu")
        return self._show()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        self.taken += 1
        if self.taken == self.config.fail_at:
            raise RuntimeError("the toy broke")
        seeds = episode_seeds(self.seed, self.number)
        living = {name: group.alive.clone() for name, group in self._step.groups.items()}
        before, self.t = self.t, self.t + 1
        done = self.t >= self.config.shortest + seeds % 7
        for name, group in self._step.groups.items():
            group.reward.copy_((before[:, None] + torch.arange(group.reward.shape[1])) * living[name])
            group.terminated.zero_()
            if name == "a":
                group.terminated[:, 1] = (self.t == 3) & living[name][:, 1]
            group.truncated.copy_(done[:, None] & living[name] & ~group.terminated)
        self._step.done.copy_(done)
        self.number = self.number + done
        self.t = self.t.masked_fill(done, 0)
        return self._show()

    def labels(self) -> dict[str, Tensor]:
        height = (10 * self.t[:, None] + torch.arange(3)).float()
        return {"odd": self.t % 2, "height": height}

    def render(self, index: int = 0) -> np.ndarray:
        image = np.zeros((4, 6, 3), np.uint8)
        image[..., 0], image[..., 1] = self._step.episode_seed[index] % 256, self.t[index]
        return image

    def _show(self) -> Step:
        seeds = episode_seeds(self.seed, self.number)
        self._step.episode_seed.copy_(seeds)
        self._step.state.copy_(torch.stack((seeds, self.t), dim=1))  # type: ignore[union-attr]
        for name, group in self._step.groups.items():
            agents = torch.arange(group.alive.shape[1])
            alive = torch.ones_like(group.alive)
            if name == "a":
                alive[:, 1] = self.t < 3
                group.action_mask.copy_((agents[:, None] + torch.arange(4)) % 4 != self.t[:, None, None] % 4)  # type: ignore[union-attr]
            group.alive.copy_(alive)
            group.acting.copy_(alive if name == "a" else alive & (self.t % 2 == 0)[:, None])
            columns = torch.broadcast_tensors(seeds[:, None], self.t[:, None], agents)
            group.observation.copy_(torch.stack(columns, dim=-1) * alive[..., None] / 10)
        return self._step


def length_of(seed: int, shortest: int = 3) -> int:
    """Steps of toy/lives' episode under a seed."""
    return shortest + seed % 7
