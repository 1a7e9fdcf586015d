"""Groups that do not learn: random, no-op, a user's function, and a policy that another run has trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tensordict import TensorDictBase

from marlnb.algorithms.learner import Learner, load_weights, weights_of
from marlnb.config import ALGORITHMS, AlgorithmConfig, LearnerContext, option
from marlnb.errors import ConfigError
from marlnb.imports import is_import_path, load_object
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import FunctionPolicy, NoOpPolicy, RandomPolicy

FUNCTION_ARGUMENTS = ("observation", "action_mask", "group", "generator")


@dataclass(frozen=True)
class FixedPolicyConfig(AlgorithmConfig):
    """Acts by a rule. The networks that the experiment names for the group are not built."""

    learns: ClassVar[bool] = False

    def check_fit(self, context: LearnerContext) -> None:
        """Everything fits: a policy that does not learn needs no networks and no finite bounds."""


@ALGORITHMS.register("random")
@dataclass(frozen=True)
class RandomConfig(FixedPolicyConfig):
    """Uniform over the allowed choices, or over the box of a continuous action."""

    def build(self, context: LearnerContext) -> FixedPolicyLearner:
        AlgorithmConfig.check_fit(self, context)  # a uniform distribution does need finite bounds
        return FixedPolicyLearner(RandomPolicy(context.group).to(context.device))


@ALGORITHMS.register("no_op")
@dataclass(frozen=True)
class NoOpConfig(FixedPolicyConfig):
    """The first allowed choice, which in many environments means doing nothing; of a box, the number nearest 0."""

    def build(self, context: LearnerContext) -> FixedPolicyLearner:
        return FixedPolicyLearner(NoOpPolicy(context.group).to(context.device))


@ALGORITHMS.register("scripted")
@dataclass(frozen=True)
class ScriptedConfig(FixedPolicyConfig):
    """A user's function, `module:function`, of (observation, action_mask, group, generator) to actions."""

    function: str = option(
        "", help="module:function; it gets all environments and agents at once; see docs/mixtures.md"
    )

    def build(self, context: LearnerContext) -> FixedPolicyLearner:
        group = context.group
        function = import_function(self.function, f"scripted for group {group.name!r} of {context.env.name}")
        return FixedPolicyLearner(FunctionPolicy(group, function, self.function).to(context.device))


@ALGORITHMS.register("frozen")
@dataclass(frozen=True)
class FrozenConfig(FixedPolicyConfig):
    """The policy that another run has trained for a group of the same spaces; this run stores its weights too."""

    run: str = option("", help="the other run's folder")
    group: str | None = option(None, help="its group; none: the one of the same name")
    checkpoint: int | str = option("last", help="last, best (or best:<group>) or an iteration")

    def build(self, context: LearnerContext) -> FixedPolicyLearner:
        """Raises ConfigError: `marlnb.training.learners` reads the other run's folder; it is above this layer."""
        raise ConfigError(
            f"frozen for group {context.group.name!r} of {context.env.name}: build it with "
            f"marlnb.training.learners.build_learners, which reads the run {self.run!r}"
        )


class FixedPolicyLearner(Learner):
    """Holds a policy and does not change it.

    Its state is the policy's, so a resumed run plays against the same opponent, whatever has happened to the run that
    trained it.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy, self.group = policy, policy.group

    def update(self, rollout: TensorDictBase) -> dict[str, float]:
        """Learns nothing and reports nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"policy": weights_of(self.policy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_weights(self.policy, state["policy"], f"the policy of {self.group.name!r}")


def import_function(path: str, who: str) -> Callable[..., Any]:
    """The function at `module:function`.

    Args:
        who: for messages, for example "scripted for group 'prey'".
    Raises:
        ConfigError: no such module or function, or it does not take FUNCTION_ARGUMENTS.
    """
    arguments = ", ".join(FUNCTION_ARGUMENTS)
    if not is_import_path(path):
        raise ConfigError(f"{who}: function must be module:function, as my_policies:chase; got {path!r}")
    try:
        function = load_object(path)
    except ConfigError as error:
        raise ConfigError(f"{who}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{who}: {path} is {function!r}, not a function of {arguments}")
    try:
        inspect.signature(function).bind(*FUNCTION_ARGUMENTS)
    except TypeError as error:
        raise ConfigError(f"{who}: {path} must take {arguments}: {error}") from error
    except ValueError:  # builtins have no signature
        pass
    return function
