"""An algorithm that cannot be built; apart from `faulty`, which the processes of environments import without torch."""

from __future__ import annotations

from dataclasses import dataclass

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.learner import Learner
from marlnb.config import LearnerContext


@dataclass(frozen=True)
class Unready(IPPOConfig):
    def build(self, context: LearnerContext) -> Learner:
        assert context.group.action.kind == "continuous"
        return super().build(context)
