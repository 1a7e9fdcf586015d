"""Settings of both sides' training runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """IPPO with BenchMARL's own configuration and these sizes. A frame is a step of one copy."""

    n_envs: int = 8
    rollout_steps: int = 250
    minibatch_frames: int = 400
    epochs: int = 10
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 3e-4
    adam_eps: float = 1e-6
    gamma: float = 0.99
    lmbda: float = 0.9
    clip: float = 0.2
    entropy: float = 0.0
    critic_coefficient: float = 1.0
    max_grad_norm: float = 5.0

    @property
    def frames(self) -> int:
        return self.n_envs * self.rollout_steps


@dataclass(frozen=True)
class OffPolicySettings:
    """A learner with a replay buffer and BenchMARL's options. A frame is one copy's step; `updates` per iteration."""

    n_envs: int = 8
    rollout_steps: int = 125
    minibatch_frames: int = 256
    updates: int = 100
    buffer_frames: int = 1_000_000
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 3e-4
    adam_eps: float = 1e-6
    gamma: float = 0.99
    tau: float = 0.005
    max_grad_norm: float = 5.0

    @property
    def frames(self) -> int:
        return self.n_envs * self.rollout_steps


@dataclass(frozen=True)
class Native(Settings):
    """IPPO with JaxMARL's options on an environment that both compute in batches; 4 epochs of 4 minibatches."""

    n_envs: int = 256
    rollout_steps: int = 25
    minibatch_frames: int = 1600
    epochs: int = 4
    hidden: tuple[int, ...] = (64, 64)
    lr: float = 2.5e-4
    adam_eps: float = 1e-5
    lmbda: float = 0.95
    entropy: float = 0.01
    critic_coefficient: float = 0.5
    max_grad_norm: float = 0.5
    n_minibatches: int = 4


@dataclass(frozen=True)
class EvolutionSettings:
    """A population with the options of AgileRL's multi-agent tutorial; one gradient step in about 96 frames.

    AgileRL learns once in every `learn_step // n_envs` steps of its environments: 12. marlnb makes two gradient steps
    after each 24 steps.
    """

    population: int = 4
    n_envs: int = 8
    episode_steps: int = 25
    generation_frames: int = 4_800
    rollout_steps: int = 24
    updates: int = 2
    learn_step: int = 100
    batch_size: int = 128
    hidden: tuple[int, ...] = (64, 64)
    lr_actor: float = 1e-4
    lr_critic: float = 1e-3
    gamma: float = 0.95
    tau: float = 0.01


SETTINGS = Settings()
BATCHED = Settings(n_envs=60, rollout_steps=100)
OFF_POLICY = OffPolicySettings()
EVOLUTION = EvolutionSettings()
ALGORITHMS = ("ippo", "maddpg", "masac", "qmix", "iql")
TASKS = ("multiwalker", "simple_spread", "navigation", "balance")
VMAS = ("navigation", "balance")
NATIVE = {
    f"{n_envs}x{units}": Native(n_envs=n_envs, minibatch_frames=n_envs * 25 // 4, hidden=(units, units))
    for n_envs in (256, 1024)
    for units in (64, 256)
}


def on_policy(task: str) -> Settings:
    return BATCHED if task in VMAS else SETTINGS


def environment_options(name: str) -> dict[str, Any]:
    """The constructor's keyword arguments, by PettingZoo's names."""
    if name == "multiwalker":
        return {"n_walkers": 3, "shared_reward": False, "max_cycles": 500}
    if name in VMAS:
        return {"n_agents": 3}
    return {"N": 3, "local_ratio": 0.5, "max_cycles": 100}
