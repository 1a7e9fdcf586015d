"""Options of ISAC and MASAC; `marlnb.algorithms.sac` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.algorithms.configs.off_policy import QActorCriticConfig
from marlnb.config import ALGORITHMS, LearnerContext, option
from marlnb.specs import ActionKind

if TYPE_CHECKING:
    from marlnb.algorithms.sac import SACLearner


@ALGORITHMS.register("isac")
@dataclass(frozen=True)
class ISACConfig(QActorCriticConfig):
    """Independent soft actor-critic: each agent's critics read what the agent observes and does."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous")

    temperature: float = option(0.1, help="initial weight of a nat of entropy", unit="reward", gt=0)
    lr_temperature: float | None = option(None, help="the temperature's learning rate; none: the actor's", gt=0, le=10)
    learn_temperature: bool = option(True, help="the temperature moves so that the entropy reaches target_entropy")
    target_entropy: float | None = option(
        None, help="continuous: bounds scaled to -1..1; none: -1 a component, or 0.3 of a uniform choice", unit="nats"
    )

    def build(self, context: LearnerContext) -> SACLearner:
        from marlnb.algorithms.sac import SACLearner
        from marlnb.models.policies.soft_policy import SoftPolicy

        self.check_fit(context)
        networks = (context.group, context.env, context.actor, context.critic)
        policy = SoftPolicy(*networks, centralised=self.centralised, temperature=self.temperature)
        return SACLearner(self, policy.to(context.device), context.env)


@ALGORITHMS.register("masac")
@dataclass(frozen=True)
class MASACConfig(ISACConfig):
    """Multi-agent SAC: the critics read every group's observations and actions, and the state if there is one."""

    centralised: ClassVar[bool] = True
    simultaneous_only: ClassVar[bool] = True
