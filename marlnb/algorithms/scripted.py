"""Groups that do not learn: random, no-op, a user's function, and a policy that another run has trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from marlnb.algorithms.configs.scripted import NoOpConfig, RandomConfig, ScriptedConfig
from marlnb.algorithms.learner import Learner, load_weights, weights_of
from marlnb.algorithms.rollout import Rollout
from marlnb.config import LEARNERS, AlgorithmConfig, LearnerContext
from marlnb.errors import ConfigError
from marlnb.models.policies.policy import Policy, device_of, policies_within
from marlnb.models.policies.scripted import FrozenPolicy, FunctionPolicy, NoOpPolicy, RandomPolicy
from marlnb.plugins.import_paths import is_import_path, load_object

FUNCTION_ARGUMENTS = ("observation", "action_mask", "group", "generator")


class FixedPolicyLearner(Learner):
    """Holds a policy and does not change it. Correlated exploration noise continues where it was."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.group = policy, policy.group

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learns nothing and reports nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        states = {name: policy.noise_state for name, policy in policies_within(self.policy).items()}
        noise = {name: state.clone() for name, state in states.items() if state is not None}
        return {"policy": weights_of(self.policy), **({"noise_states": noise} if noise else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_weights(self.policy, state["policy"], f"the policy of {self.group.name!r}")
        for name, policy in policies_within(self.policy).items():
            noise = state.get("noise_states", {}).get(name)
            policy.noise_state = None if noise is None else noise.to(device_of(policy))


class FrozenLearner(FixedPolicyLearner):
    """Holds a policy that another run has trained.

    Its state has the weights and describes their networks. So a run that has a checkpoint plays against the same
    opponent, and needs no checkpoint of the other run any more.

    Args:
        policy: what the agents act with.
        networks: what a checkpoint of the other run says about its networks; empty unless that is a population.
        build: the learner that trained it, with such networks and any weights.
    """

    policy: FrozenPolicy

    def __init__(
        self, policy: FrozenPolicy, networks: Mapping[str, Any], build: Callable[[Mapping[str, Any]], Learner]
    ) -> None:
        super().__init__(policy)
        self._networks, self._build = networks, build

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "networks": self._networks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        networks = state.get("networks", self._networks)  # checkpoints of earlier versions have none
        if networks != self._networks:
            self.policy.hold(self._build(networks).policy)
            self._networks = networks
        super().load_state_dict(state)


@LEARNERS.register(RandomConfig)
def random_learner(config: RandomConfig, context: LearnerContext) -> FixedPolicyLearner:
    AlgorithmConfig.check_fit(config, context)  # a uniform distribution does need finite bounds
    return FixedPolicyLearner(RandomPolicy(context.group).to(context.device))


@LEARNERS.register(NoOpConfig)
def no_op_learner(config: NoOpConfig, context: LearnerContext) -> FixedPolicyLearner:
    return FixedPolicyLearner(NoOpPolicy(context.group).to(context.device))


@LEARNERS.register(ScriptedConfig)
def scripted_learner(config: ScriptedConfig, context: LearnerContext) -> FixedPolicyLearner:
    """Raises ConfigError: the function cannot be imported, or does not take FUNCTION_ARGUMENTS."""
    group = context.group
    function = import_function(config.function, f"scripted for group {group.name!r} of {context.env.name}")
    return FixedPolicyLearner(FunctionPolicy(group, function, config.function).to(context.device))


def import_function(path: str, who: str) -> Callable[..., Any]:
    """The function at `module:function`.

    Args:
        who: for messages, for example "scripted for group 'prey'".
    Raises:
        ConfigError: no such module or function, or it does not take FUNCTION_ARGUMENTS.
    """
    arguments = ", ".join(FUNCTION_ARGUMENTS)
    if not is_import_path(path):
        raise ConfigError(f"{who}: function must be module:function, such as my_policies:chase; got {path!r}")
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
