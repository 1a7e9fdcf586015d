"""Options of the algorithms that learn from whole rollouts; `marlnb.algorithms.on_policy` has the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.algorithms.configs.choices import RegressionLoss, check_both_set
from marlnb.config import AlgorithmConfig, LearnerContext, ModelConfig, SearchRange, option
from marlnb.errors import ConfigError
from marlnb.models.policies.choices import LOG_STD_RANGE, Squash, StdOf

MIN_STEPS_OF_TURNS = 3  # an agent moves, another one does, and it moves again


@dataclass(frozen=True)
class OnPolicyConfig(AlgorithmConfig):
    """Options of the algorithms that learn an actor and a critic from whole rollouts."""

    centralised: ClassVar[bool] = False
    recurrent_options: ClassVar[tuple[str, ...]] = ("sequence_length",)
    mutable: ClassVar[tuple[str, ...]] = ("lr",)

    lr: float = option(3e-4, help="Adam's learning rate", gt=0, le=10, search=SearchRange("log", 1e-5, 1e-2))
    lr_critic: float | None = option(
        None,
        help="the critic's learning rate; none: the actor's",
        gt=0,
        le=10,
        search=SearchRange("log", 1e-5, 1e-2),
    )
    lr_final: float | None = option(None, help="learning rate after anneal_frames; it changes linearly", ge=0, le=10)
    anneal_frames: int = option(0, help="frames over which the learning rate moves to lr_final", unit="frames", ge=0)
    adam_eps: float = option(1e-5, help="Adam's epsilon", gt=0)
    gamma: float = option(0.99, help="discount per step", ge=0, le=1, search=SearchRange("one_minus", 0.9, 0.9999))
    gae_lambda: float = option(
        0.95,
        help="GAE's lambda: weight of longer advantage estimates",
        ge=0,
        le=1,
        search=SearchRange("one_minus", 0.5, 0.999),
    )
    epochs: int = option(10, help="passes over each rollout", ge=1, le=10_000, search=SearchRange("log", 1, 30))
    minibatch_frames: int = option(
        400,
        help="size of a minibatch; a frame holds every agent",
        unit="frames",
        ge=1,
        search=SearchRange("divisors", 16, 100_000, of="iteration_frames"),
    )
    n_minibatches: int = option(0, help="minibatches per epoch; 0: as many as minibatch_frames gives", ge=0)
    sequence_length: int = option(
        16, help="steps of backpropagation through recurrent networks", unit="steps", ge=1, le=100_000
    )
    max_grad_norm: float = option(0.5, help="bound on the gradient norm of the actor and of the critic; 0: none", ge=0)
    normalise_advantages: bool = option(True, help="to mean 0 and standard deviation 1 over the agents that acted")
    normalise_values: bool = option(
        True, help="the critic learns returns scaled by their running mean and standard deviation"
    )
    squash: Squash = option("tanh", help="how continuous actions are bounded", choices=("tanh", "clip"))
    std_of: StdOf = option(
        "parameter",
        help="where a continuous action's standard deviation comes from: a parameter, or the network",
        choices=("parameter", "network"),
    )
    initial_log_std: float = option(
        0.0,
        help="of continuous actions, bounds scaled to -1..1",
        unit="nats",
        ge=LOG_STD_RANGE[0],
        le=LOG_STD_RANGE[1],
    )

    @property
    def fixed_options(self) -> tuple[str, ...]:
        return ("initial_log_std",)

    def check_fit(self, context: LearnerContext) -> None:
        super().check_fit(context)
        if not context.env.simultaneous and context.rollout_steps < MIN_STEPS_OF_TURNS:
            n_agents = len(context.env.agents)
            raise ConfigError(
                f"{self.name} for group {context.group.name!r} of {context.env.name}: "
                f"rollout_steps={context.rollout_steps} is too short for turns, which end when the same agent acts "
                f"again; valid: {MIN_STEPS_OF_TURNS} or more, and where {n_agents} agents move one by one, "
                f"{max(n_agents + 1, MIN_STEPS_OF_TURNS)} or more"
            )

    def check_networks(
        self, where: str, actor: ModelConfig, critic: ModelConfig, n_envs: int, rollout_steps: int
    ) -> None:
        super().check_networks(where, actor, critic, n_envs, rollout_steps)
        steps, recurrent = rollout_steps, actor.recurrent or critic.recurrent
        if recurrent and steps % self.sequence_length:
            divisors = ", ".join(str(n) for n in range(1, steps + 1) if steps % n == 0)
            raise ConfigError(
                f"{where}: sequence_length={self.sequence_length} must divide rollout_steps={steps}; valid: {divisors}"
            )
        n_samples = n_envs * steps // (self.sequence_length if recurrent else 1)
        if self.n_minibatches > n_samples:
            raise ConfigError(f"{where}: {self.n_minibatches} minibatches of {n_samples} samples; at most {n_samples}")
        check_both_set(where, "lr_final", self.lr_final, "anneal_frames", self.anneal_frames)


@dataclass(frozen=True)
class PolicyGradientConfig(OnPolicyConfig):
    """Options of a loss of three terms: the policy's, the critic's and an entropy bonus."""

    entropy_coef: float = option(0.0, help="weight of the entropy bonus", ge=0, search=SearchRange("log", 1e-4, 0.1))
    value_coef: float = option(1.0, help="weight of the value loss", ge=0)
    value_loss: RegressionLoss = option("l2", help="shape of the value loss", choices=("l2", "huber"))
