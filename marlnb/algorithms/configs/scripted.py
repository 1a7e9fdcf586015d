"""Options of groups that do not learn; `marlnb.algorithms.scripted` has their learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ALGORITHMS, AlgorithmConfig, LearnerContext, option
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.algorithms.learner import Learner


@dataclass(frozen=True)
class FixedPolicyConfig(AlgorithmConfig):
    """Acts by a rule. The networks that the experiment names for the group are not built."""

    learns: ClassVar[bool] = False

    def check_fit(self, context: LearnerContext) -> None:
        """Accepts everything: a policy that does not learn needs no networks and no finite bounds."""


@ALGORITHMS.register("random")
@dataclass(frozen=True)
class RandomConfig(FixedPolicyConfig):
    """Uniform over the allowed choices, or over the box of a continuous action."""


@ALGORITHMS.register("no_op")
@dataclass(frozen=True)
class NoOpConfig(FixedPolicyConfig):
    """The first allowed choice, which in many environments means doing nothing; of a box, the number nearest 0."""


@ALGORITHMS.register("scripted")
@dataclass(frozen=True)
class ScriptedConfig(FixedPolicyConfig):
    """A user's function, `module:function`, of (observation, action_mask, group, generator) to actions."""

    function: str = option(
        "",
        help="module:function; it gets all environments and agents at once; see docs/mixtures.md",
        effect="imports and calls",
    )


@ALGORITHMS.register("frozen")
@dataclass(frozen=True)
class FrozenConfig(FixedPolicyConfig):
    """The policy that another run has trained for a group of the same spaces; this run stores its weights too."""

    run: str = option("", help="the other run's folder")
    group: str | None = option(None, help="its group; none: the one of the same name")
    checkpoint: int | str = option("last", help="last, best (or best:<group>) or an iteration")

    @property
    def fixed_options(self) -> tuple[str, ...]:
        return "run", "group", "checkpoint"

    def build(self, context: LearnerContext) -> Learner:
        """Raises ConfigError: `marlnb.training.learners` reads the other run's folder; it is above this layer."""
        raise ConfigError(
            f"frozen for group {context.group.name!r} of {context.env.name}: build it with "
            f"marlnb.training.learners.build_learners, which reads the run {self.run!r}"
        )
