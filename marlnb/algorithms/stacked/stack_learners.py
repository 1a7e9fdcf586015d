"""Which learners of several training runs can learn as one, and what they are then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from marlnb.algorithms.ddpg import DDPGLearner
from marlnb.algorithms.learner import Learner
from marlnb.algorithms.ppo import PPOLearner
from marlnb.algorithms.stacked.stacked_ddpg import StackedDDPG, check_ddpg
from marlnb.algorithms.stacked.stacked_learner import StackedLearner
from marlnb.algorithms.stacked.stacked_ppo import StackedPPO, check_ppo
from marlnb.errors import ConfigError

L = TypeVar("L", bound=Learner)

STACKABLE = "ippo, mappo, iddpg, maddpg and matd3"


def stack_learners(learners: Sequence[Learner]) -> StackedLearner:
    """Learners of one group of agents, each of another training run, as one. Raises as `check_stackable_learners`."""
    check_stackable_learners(learners)
    ppo, ddpg = _of_kind(learners, PPOLearner), _of_kind(learners, DDPGLearner)
    return StackedPPO(ppo) if ppo else StackedDDPG(ddpg)


def check_stackable_learners(learners: Sequence[Learner]) -> None:
    """Raises ConfigError: learners of one group in several runs cannot learn together; it names those that can."""
    ppo, ddpg = _of_kind(learners, PPOLearner), _of_kind(learners, DDPGLearner)
    if len(ppo) == len(learners):
        check_ppo(ppo)
    elif len(ddpg) == len(learners):
        check_ddpg(ddpg)
    else:
        kinds = sorted({type(learner).__name__ for learner in learners})
        raise ConfigError(
            f"group {learners[0].group.name!r} learns by {', '.join(kinds)}; runs in one batch need {STACKABLE}, "
            "the same kind in all"
        )


def have_equal_shapes(learners: Sequence[Learner]) -> bool:
    """Whether learners that can be stacked have networks of equal shapes, so that they can be stacked together."""
    try:
        check_stackable_learners(learners)
    except ConfigError:
        return False
    return True


def _of_kind(learners: Sequence[Learner], kind: type[L]) -> list[L]:
    return [learner for learner in learners if type(learner) is kind]
