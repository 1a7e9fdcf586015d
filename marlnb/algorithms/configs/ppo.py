"""Options of IPPO and MAPPO; `marlnb.algorithms.ppo` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.algorithms.configs.choices import RegressionLoss
from marlnb.algorithms.configs.on_policy import OnPolicyConfig
from marlnb.config import ALGORITHMS, option
from marlnb.search_range import SearchRange


@ALGORITHMS.register("ippo")
@dataclass(frozen=True)
class IPPOConfig(OnPolicyConfig):
    """Independent PPO: each agent's critic reads what the agent observes."""

    mutable: ClassVar[tuple[str, ...]] = ("lr", "clip", "entropy_coef")

    clip: float = option(
        0.2, help="bound on the change of the probability ratio", gt=0, search=SearchRange("log", 0.02, 0.5)
    )
    entropy_coef: float = option(0.0, help="weight of the entropy bonus", ge=0, search=SearchRange("log", 1e-4, 0.1))
    value_coef: float = option(1.0, help="weight of the value loss", ge=0)
    value_loss: RegressionLoss = option("l2", help="shape of the value loss", choices=("l2", "huber"))
    value_clip: float | None = option(None, help="bound on the change of the normalised value; none: unbounded", gt=0)
    target_kl: float | None = option(None, help="the update ends once the mean KL exceeds this", unit="nats", gt=0)


@ALGORITHMS.register("mappo")
@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """Multi-agent PPO: the critic reads every group's observations, and the environment's state if it has one."""

    centralised: ClassVar[bool] = True
