"""Options of IPPO and MAPPO; `marlnb.algorithms.ppo` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.algorithms.configs.on_policy import PolicyGradientConfig
from marlnb.config import ALGORITHMS, SearchRange, option


@ALGORITHMS.register("ippo")
@dataclass(frozen=True)
class IPPOConfig(PolicyGradientConfig):
    """Independent PPO: each agent's critic reads what the agent observes."""

    mutable: ClassVar[tuple[str, ...]] = ("lr", "clip", "entropy_coef")

    clip: float = option(
        0.2, help="bound on the change of the probability ratio", gt=0, search=SearchRange("log", 0.02, 0.5)
    )
    value_clip: float | None = option(None, help="bound on the change of the normalised value; none: unbounded", gt=0)
    target_kl: float | None = option(None, help="the update ends once the mean KL exceeds this", unit="nats", gt=0)


@ALGORITHMS.register("mappo")
@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """Multi-agent PPO: the critic reads every group's observations, and the environment's state if it has one."""

    centralised: ClassVar[bool] = True
