"""Options of A2C and MAA2C; `marlnb.algorithms.a2c` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.algorithms.configs.on_policy import PolicyGradientConfig
from marlnb.config import ALGORITHMS


@ALGORITHMS.register("a2c")
@dataclass(frozen=True)
class A2CConfig(PolicyGradientConfig):
    """Independent advantage actor-critic: one pass over each rollout; a critic reads what its agent observes."""

    mutable: ClassVar[tuple[str, ...]] = ("lr", "entropy_coef")
    epochs: ClassVar[int] = 1  # type: ignore[misc]  # the gradient is that of the policy which collected the rollout


@ALGORITHMS.register("maa2c")
@dataclass(frozen=True)
class MAA2CConfig(A2CConfig):
    """Multi-agent A2C: the critic reads every group's observations, and the environment's state if it has one."""

    centralised: ClassVar[bool] = True
