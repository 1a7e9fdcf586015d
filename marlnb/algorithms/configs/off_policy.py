"""Options of the algorithms that learn from a replay buffer; `marlnb.algorithms.off_policy` has the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from marlnb.config import AlgorithmConfig, LearnerContext, ModelConfig, SearchRange, option
from marlnb.errors import ConfigError


@dataclass(frozen=True)
class OffPolicyConfig(AlgorithmConfig):
    """Options of every algorithm that learns from a replay buffer."""

    on_policy: ClassVar[bool] = False
    recurrent_options: ClassVar[tuple[str, ...]] = ("sequence_length",)
    mutable: ClassVar[tuple[str, ...]] = ("lr", "batch_size", "tau")

    lr: float = option(5e-4, help="Adam's learning rate", gt=0, le=10, search=SearchRange("log", 1e-5, 1e-2))
    adam_eps: float = option(1e-5, help="Adam's epsilon", gt=0)
    gamma: float = option(0.99, help="discount per step", ge=0, le=1, search=SearchRange("one_minus", 0.9, 0.9999))
    max_grad_norm: float = option(10.0, help="bound on the gradient norm of each network; 0: none", ge=0)
    buffer_frames: int = option(
        1_000_000, help="size of the replay buffer; the oldest frames are overwritten", unit="frames", ge=1, le=10**9
    )
    batch_size: int = option(
        256,
        help="size of a minibatch; a frame holds every agent",
        unit="frames",
        ge=1,
        search=SearchRange("log", 32, 1024),
    )
    updates: int = option(
        100, help="gradient steps after each rollout", ge=1, le=1_000_000, search=SearchRange("log", 1, 1000)
    )
    learning_starts: int = option(
        5_000, help="until then actions are random and nothing is learned", unit="frames", ge=0
    )
    tau: float = option(
        0.005,
        help="share of the weights that target networks take over at each step",
        gt=0,
        le=1,
        search=SearchRange("log", 5e-4, 0.1),
    )
    target_every: int = option(
        0, help="gradient steps between two full copies of the weights into the targets; 0: soft updates by tau", ge=0
    )
    n_steps: int = option(
        1, help="steps whose rewards a target sums before it adds the next value", unit="steps", ge=1, le=1000
    )
    sequence_length: int = option(16, help="steps of a sample for recurrent networks", unit="steps", ge=1, le=100_000)
    save_replay: bool = option(
        True, help="checkpoints hold the replay buffer; without it a resumed training run refills it and is not exact"
    )

    @property
    def warmup_frames(self) -> int:
        return self.learning_starts

    @property
    def fixed_options(self) -> tuple[str, ...]:
        return "buffer_frames", "sequence_length"

    def check_fit(self, context: LearnerContext) -> None:
        super().check_fit(context)
        if self.n_steps > 1 and not context.env.simultaneous:
            raise ConfigError(
                f"{self.name} for group {context.group.name!r} of {context.env.name}: n_steps={self.n_steps} needs "
                "every agent to act at every step, but here agents wait for their turns; valid here: n_steps=1"
            )

    def check_networks(
        self, where: str, actor: ModelConfig, critic: ModelConfig, n_envs: int, rollout_steps: int
    ) -> None:
        super().check_networks(where, actor, critic, n_envs, rollout_steps)
        if self.n_steps > 1 and (recurrent := sorted({model.name for model in (actor, critic) if model.recurrent})):
            raise ConfigError(
                f"{where}: n_steps={self.n_steps} needs feed-forward networks; got {', '.join(recurrent)}. Valid with "
                "them: n_steps=1"
            )
        steps_of_sample = self.sequence_length if actor.recurrent or critic.recurrent else 1
        steps = max(rollout_steps, steps_of_sample)
        if self.buffer_frames < n_envs * steps:
            raise ConfigError(
                f"{where}: buffer_frames={self.buffer_frames} is smaller than one rollout; at least "
                f"{n_envs * steps} (n_envs={n_envs} times {steps} steps)"
            )
        if self.batch_size > self.buffer_frames:
            raise ConfigError(
                f"{where}: batch_size={self.batch_size} is larger than the replay buffer, "
                f"buffer_frames={self.buffer_frames}"
            )
        if self.batch_size < steps_of_sample:
            raise ConfigError(
                f"{where}: batch_size={self.batch_size} is smaller than one sequence of {steps_of_sample} steps"
            )


@dataclass(frozen=True)
class QActorCriticConfig(OffPolicyConfig):
    """Options of the algorithms that have an actor and learn the values of actions."""

    recurrent: ClassVar[bool] = False
    centralised: ClassVar[bool] = False
    policy_actions = "own"  # an option of those with centralised critics

    lr_critic: float | None = option(
        None,
        help="the critics' learning rate; none: the actor's",
        gt=0,
        le=10,
        search=SearchRange("log", 1e-5, 1e-2),
    )


@dataclass(frozen=True)
class CentralisedCriticConfig(QActorCriticConfig):
    """Options of those whose critics read every group's observations and actions, and the state if there is one."""

    centralised: ClassVar[bool] = True
    simultaneous_only: ClassVar[bool] = True

    policy_actions: Literal["own", "all"] = option(
        "own",
        help="whose actions the current policy chooses in the actor's loss; own: the agent's, with the others' "
        "actions from the replay buffer (Lowe et al. 2017, equation 6); all: its group's at once (as in BenchMARL), "
        "which is cheaper where actions are continuous or relaxed",
        choices=("own", "all"),
    )
