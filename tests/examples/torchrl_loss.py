"""A torchrl loss as an algorithm: conservative Q-learning, which marlnb does not have.

Source: Kumar et al. 2020, Conservative Q-Learning for Offline Reinforcement Learning (arXiv:2006.04779).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.algorithms.torchrl_loss import OffPolicyLossConfig, q_module
from marlnb.config import ALGORITHMS, LearnerContext
from marlnb.models.policies.q_policy import QPolicy
from marlnb.specs import ActionKind

if TYPE_CHECKING:
    from torchrl.objectives import LossModule


@ALGORITHMS.register("examples/cql")
@dataclass(frozen=True)
class CQLConfig(OffPolicyLossConfig):
    """Q-learning that keeps the values of actions that were not taken low."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)

    def build_policy(self, context: LearnerContext) -> QPolicy:
        return QPolicy(context.group, context.actor)

    def build_loss(self, policy: QPolicy) -> LossModule:
        from torchrl.objectives import DiscreteCQLLoss

        return DiscreteCQLLoss(q_module(policy), action_space="categorical", reduction="none")
