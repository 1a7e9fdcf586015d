"""Options of IDDPG, MADDPG and MATD3; `marlnb.algorithms.ddpg` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from marlnb.algorithms.configs.choices import check_both_set
from marlnb.algorithms.configs.off_policy import CentralisedCriticConfig, QActorCriticConfig
from marlnb.config import ALGORITHMS, ModelConfig, SearchRange, option


@ALGORITHMS.register("iddpg")
@dataclass(frozen=True)
class IDDPGConfig(QActorCriticConfig):
    """Independent DDPG: each agent's critic reads what the agent observes and does."""

    twins: ClassVar[bool] = False
    # options of MATD3
    actor_every = 1
    target_noise = target_noise_clip = 0.0

    noise: float = option(
        0.2,
        help="deviation of the noise on continuous actions, bounds scaled to -1..1; of ornstein_uhlenbeck: per unit "
        "of time",
        ge=0,
        search=SearchRange("log", 0.01, 1.0),
    )
    noise_kind: Literal["gaussian", "ornstein_uhlenbeck"] = option(
        "gaussian",
        help="gaussian: independent at each step; ornstein_uhlenbeck: correlated in time, 0 when an episode begins",
        choices=("gaussian", "ornstein_uhlenbeck"),
    )
    noise_theta: float = option(0.15, help="ornstein_uhlenbeck: how fast the noise returns to 0", gt=0)
    noise_dt: float = option(0.01, help="ornstein_uhlenbeck: time between two steps", gt=0, le=1)
    noise_final: float | None = option(None, help="deviation after noise_frames; it changes linearly", ge=0)
    noise_frames: int = option(0, help="frames over which the noise moves to noise_final", unit="frames", ge=0)
    temperature: float = option(1.0, help="of the relaxed discrete actions that the actor learns through", gt=0)
    output_penalty: float = option(
        1e-3, help="weight of the actor's squared outputs (logits, or actions before the tanh)", ge=0
    )

    def check_networks(
        self, where: str, actor: ModelConfig, critic: ModelConfig, n_envs: int, rollout_steps: int
    ) -> None:
        super().check_networks(where, actor, critic, n_envs, rollout_steps)
        check_both_set(where, "noise_final", self.noise_final, "noise_frames", self.noise_frames)


@ALGORITHMS.register("maddpg")
@dataclass(frozen=True)
class MADDPGConfig(CentralisedCriticConfig, IDDPGConfig):
    """Multi-agent DDPG: the critic reads every group's observations and actions, and the state if there is one."""


@ALGORITHMS.register("matd3")
@dataclass(frozen=True)
class MATD3Config(MADDPGConfig):
    """Multi-agent TD3: MADDPG with twin critics, smoothed target actions and fewer steps of the actor."""

    twins: ClassVar[bool] = True

    actor_every: int = option(2, help="steps of the critics per step of the actor and the targets", ge=1)
    target_noise: float = option(0.2, help="deviation of the noise on the targets' continuous actions", ge=0)
    target_noise_clip: float = option(0.5, help="bound on that noise", ge=0)
