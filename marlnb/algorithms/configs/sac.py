"""Options of ISAC and MASAC; `marlnb.algorithms.sac` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.algorithms.configs.off_policy import CentralisedCriticConfig, QActorCriticConfig
from marlnb.config import ALGORITHMS, option
from marlnb.specs import ActionKind


@ALGORITHMS.register("isac")
@dataclass(frozen=True)
class ISACConfig(QActorCriticConfig):
    """Independent soft actor-critic: each agent's critics read what the agent observes and does."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous")

    temperature: float = option(0.1, help="initial temperature: reward per nat of entropy", unit="reward", gt=0)
    lr_temperature: float | None = option(None, help="the temperature's learning rate; none: the actor's", gt=0, le=10)
    learn_temperature: bool = option(True, help="the temperature moves so that the entropy reaches target_entropy")
    target_entropy: float | None = option(
        None, help="continuous: bounds scaled to -1..1; none: -1 a component, or 0.3 of a uniform choice", unit="nats"
    )

    @property
    def fixed_options(self) -> tuple[str, ...]:
        initial = ("temperature",) if self.learn_temperature else ()
        return (*super().fixed_options, *initial)


@ALGORITHMS.register("masac")
@dataclass(frozen=True)
class MASACConfig(CentralisedCriticConfig, ISACConfig):
    """Multi-agent SAC: the critics read every group's observations and actions, and the state if there is one."""
