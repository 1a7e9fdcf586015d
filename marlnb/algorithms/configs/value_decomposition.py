"""Options of IQL, VDN and QMIX; `marlnb.algorithms.value_decomposition` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.algorithms.configs.choices import RegressionLoss
from marlnb.algorithms.configs.off_policy import OffPolicyConfig
from marlnb.config import ALGORITHMS, ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.specs import ActionKind


@ALGORITHMS.register("iql")
@dataclass(frozen=True)
class IQLConfig(OffPolicyConfig):
    """Independent Q-learning: each agent learns the values of its own actions, from its own rewards.

    The Q network is of the actor's kind; the critic's options are not used.
    """

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    recurrent_options: ClassVar[tuple[str, ...]] = ("sequence_length", "burn_in")

    epsilon_start: float = option(1.0, help="share of random actions at the start", ge=0, le=1)
    epsilon_end: float = option(0.05, help="share of random actions after epsilon_frames", ge=0, le=1)
    epsilon_frames: int = option(50_000, help="frames over which it falls linearly", unit="frames", ge=0)
    double: bool = option(
        True, help="double Q-learning: the network chooses the next action, the target network evaluates it"
    )
    standardise_rewards: bool = option(
        True,
        help="rewards are shifted and scaled to mean 0 and deviation 1, as measured when learning begins, unless an "
        "episode had terminated by then; values are reported in units of reward either way",
    )
    loss: RegressionLoss = option("l2", help="shape of the loss", choices=("l2", "huber"))
    burn_in: int = option(0, help="first steps of a sequence that only warm up the recurrent state", unit="steps", ge=0)

    def check_networks(
        self, where: str, actor: ModelConfig, critic: ModelConfig, n_envs: int, rollout_steps: int
    ) -> None:
        super().check_networks(where, actor, actor, n_envs, rollout_steps)
        if actor.recurrent and self.burn_in >= self.sequence_length:
            raise ConfigError(
                f"{where}: burn_in={self.burn_in} leaves no steps to learn from; "
                f"at most {self.sequence_length - 1} of sequence_length={self.sequence_length}"
            )


@ALGORITHMS.register("vdn")
@dataclass(frozen=True)
class VDNConfig(IQLConfig):
    """Value decomposition: the sum of the agents' Q values learns the team's reward."""

    simultaneous_only: ClassVar[bool] = True
    team_reward: ClassVar[bool] = True


@ALGORITHMS.register("qmix")
@dataclass(frozen=True)
class QMIXConfig(VDNConfig):
    """QMIX: a mixture of the agents' Q values, monotonic in each, learns the team's reward."""

    mixer_units: int = option(32, help="units of the mixer's hidden layer", unit="units", ge=1, le=65_536)
    hyper_units: int = option(
        64,
        help="of a layer between the state and the mixer's weights; 0: none, as in the paper",
        unit="units",
        ge=0,
        le=65_536,
    )

    @property
    def fixed_options(self) -> tuple[str, ...]:
        return (*super().fixed_options, "mixer_units", "hyper_units")
