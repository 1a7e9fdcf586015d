"""Groups that do not learn: random, no-op, a function of the user's, and a policy that another run has trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tensordict import TensorDictBase

from marlnb.algorithms.learner import Learner
from marlnb.config import AlgorithmConfig, ModelConfig, option
from marlnb.errors import CheckpointError, ConfigError
from marlnb.imports import found_at, is_import_path
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import FunctionPolicy, NoOpPolicy, RandomPolicy
from marlnb.registry import ALGORITHMS
from marlnb.specs import EnvSpec, GroupSpec

ASKED = ("observation", "action_mask", "group", "generator")  # what a function of the user's is given


@dataclass(frozen=True)
class FixedPolicyConfig(AlgorithmConfig):
    """Acts by a rule. Networks that the experiment names for the group are not built."""

    learns: ClassVar[bool] = False

    def check_fit(self, group: GroupSpec, env: EnvSpec, actor: ModelConfig, critic: ModelConfig) -> None:
        """Anything fits: what does not learn needs no networks, and draws within any bounds that it is given."""


@ALGORITHMS.register("random")
@dataclass(frozen=True)
class RandomConfig(FixedPolicyConfig):
    """Uniform over the allowed choices, or over the box of a continuous action."""

    def build(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        n_envs: int,
        rollout_steps: int,
        device: str,
    ) -> FixedPolicyLearner:
        AlgorithmConfig.check_fit(self, group, env, actor, critic)
        return FixedPolicyLearner(RandomPolicy(group).to(device))


@ALGORITHMS.register("no_op")
@dataclass(frozen=True)
class NoOpConfig(FixedPolicyConfig):
    """The first allowed choice, which many environments mean as doing nothing; of a box, the number nearest 0."""

    def build(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        n_envs: int,
        rollout_steps: int,
        device: str,
    ) -> FixedPolicyLearner:
        return FixedPolicyLearner(NoOpPolicy(group).to(device))


@ALGORITHMS.register("scripted")
@dataclass(frozen=True)
class ScriptedConfig(FixedPolicyConfig):
    """A function of the user's, `module:function`, of (observation, action_mask, group, generator) to actions."""

    function: str = option("", help="module:function, given all copies and agents at once; see docs/mixtures.md")

    def build(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        n_envs: int,
        rollout_steps: int,
        device: str,
    ) -> FixedPolicyLearner:
        function = import_function(self.function, f"scripted for group {group.name!r} of {env.name}")
        return FixedPolicyLearner(FunctionPolicy(group, function, self.function).to(device))


@ALGORITHMS.register("frozen")
@dataclass(frozen=True)
class FrozenConfig(FixedPolicyConfig):
    """The policy that another run has trained for a group of the same spaces; its weights go into this run as well."""

    run: str = option("", help="the other run's folder")
    group: str | None = option(None, help="its group; none: the one of the same name")
    checkpoint: int | str = option("last", help="last, best or an iteration")

    def build(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        n_envs: int,
        rollout_steps: int,
        device: str,
    ) -> FixedPolicyLearner:
        """Raises ConfigError: a run's folder is read by `marlnb.training.learners.build_learners`, above this layer."""
        raise ConfigError(
            f"frozen for group {group.name!r} of {env.name}: build it with marlnb.training.learners.build_learners, "
            f"which reads the run {self.run!r}"
        )


class FixedPolicyLearner(Learner):
    """Holds a policy and leaves it as it is. Its state is the policy's, so that a resumed run plays against the same
    opponent whatever has become of the run that trained it."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.group = policy, policy.group

    def update(self, rollout: TensorDictBase) -> dict[str, float]:
        """Nothing is learnt, and there is nothing to report."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"policy": {name: tensor.clone() for name, tensor in self.policy.state_dict().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self.policy.load_state_dict(state["policy"])
        except RuntimeError as error:
            raise CheckpointError(f"weights of another policy than {self.group.name!r} has: {error}") from error


def import_function(path: str, who: str) -> Callable[..., Any]:
    """What `module:function` names.

    Args:
        who: for messages, as "scripted for group 'prey'".
    Raises:
        ConfigError: no such module or function, or it does not take what a policy is asked with.
    """
    if not is_import_path(path):
        raise ConfigError(f"{who}: function must be module:function, as my_policies:chase; got {path!r}")
    try:
        found = found_at(path)
    except ConfigError as error:
        raise ConfigError(f"{who}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{who}: {path} is {found!r}, not a function of {', '.join(ASKED)}")
    function: Callable[..., Any] = found
    try:
        inspect.signature(function).bind(*ASKED)
    except TypeError as error:
        raise ConfigError(f"{who}: {path} must take {', '.join(ASKED)}: {error}") from error
    except ValueError:  # no signature that Python can tell
        pass
    return function
