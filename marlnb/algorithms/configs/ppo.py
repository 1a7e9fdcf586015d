"""Options of IPPO and MAPPO; `marlnb.algorithms.ppo` has the equations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.algorithms.configs.choices import RegressionLoss
from marlnb.algorithms.configs.on_policy import PolicyGradientConfig
from marlnb.config import ALGORITHMS, option

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.algorithms.on_policy import Minibatch
    from marlnb.algorithms.policy_gradient import Evaluation


@ALGORITHMS.register("ippo")
@dataclass(frozen=True)
class IPPOConfig(PolicyGradientConfig):
    """Independent PPO: each agent's critic reads what the agent observes."""

    loss_is_mean: ClassVar[bool] = True

    clip: float = option(0.2, help="bound on the change of the probability ratio", gt=0)
    entropy_coef: float = option(0.0, help="weight of the entropy bonus", ge=0)
    value_coef: float = option(1.0, help="weight of the value loss", ge=0)
    value_loss: RegressionLoss = option("l2", help="shape of the value loss", choices=("l2", "huber"))
    value_clip: float | None = option(None, help="bound on the change of the normalised value; none: unbounded", gt=0)
    target_kl: float | None = option(None, help="the update ends once the mean KL exceeds this", unit="nats", gt=0)

    @property
    def needs_old_values(self) -> bool:
        return self.value_clip is not None

    def loss(self, evaluation: Evaluation, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """`marlnb.algorithms.ppo.ppo_loss`, with these options."""
        from marlnb.algorithms.ppo import ppo_loss

        return ppo_loss(self, evaluation, minibatch)

    def stops_after(self, metrics: Mapping[str, Tensor]) -> bool:
        return self.target_kl is not None and float(metrics["kl"]) > self.target_kl


@ALGORITHMS.register("mappo")
@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """Multi-agent PPO: the critic reads every group's observations, and the environment's state if it has one."""

    centralised: ClassVar[bool] = True
