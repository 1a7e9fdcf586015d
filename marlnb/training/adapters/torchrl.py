"""agents_from_torchrl: agents controlled by a torchrl policy, for example a ProbabilisticActor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from marlnb.errors import ConfigError
from marlnb.models.adapters.tensordict_policy import critic_of, policy_of
from marlnb.training.adapters.environment import EnvLike, env_and_spec
from marlnb.training.policies.agents import Agents

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModuleBase
    from torch import nn

    from marlnb.specs import GroupSpec


def agents_from_torchrl(
    policy: TensorDictModuleBase | Mapping[str, TensorDictModuleBase],
    env: EnvLike,
    *,
    group_map: Mapping[str, str] | None = None,
    critic: TensorDictModuleBase | Mapping[str, TensorDictModuleBase] | None = None,
    alpha: float = 0.0,
    path: str | os.PathLike[str] = "runs/agents_from_torchrl",
    source: str = "torchrl",
    n_envs: int = 32,
) -> Agents:
    """Agents controlled by a torchrl policy: its networks (MultiAgentMLP or any other) and its distribution.

    Args:
        policy: one for all groups, or by group. It reads `(<group>, "observation")` and writes `(<group>, "action")`.
        env: a torchrl EnvBase or a function that returns one, a name such as "pettingzoo/simple_spread", or an
            EnvConfig.
        group_map: {group in the environment: group in the policy}, if their names differ.
        critic: one for all groups, or by group. It reads the group's observation, or "state", and writes the group's
            value, or the Q values of all discrete actions, whose expectation under the policy is the value.
        alpha: weight of the policy's entropy in that value, in units of reward, as in discrete SAC's loss; 0: none.
        path: folder of the agents' recordings.
        source: a description of where the agents come from.
        n_envs: default number of environments stepped at once.
    Raises:
        ConfigError: no network maps the group's observation to its action, or the distribution is not supported
            (the message lists the supported ones).
    """
    maker, spec = env_and_spec(env)
    names = dict(group_map or {})
    unknown = sorted(set(names) - set(spec.group_names))
    if unknown:
        raise ConfigError(f"group_map has {unknown}; expected groups of {spec.name}: {list(spec.group_names)}")
    policies, networks = {}, {}
    for group in spec.groups:
        policy_group = names.get(group.name, group.name)
        module = _of_group(policy, policy_group, group)
        key = _key(module, policy_group)
        group_critic = None
        if critic is not None:
            group_critic = critic_of(_of_group(critic, policy_group, group), group, spec, key, alpha=alpha)
        policies[group.name] = policy_of(module, group, key, critic=group_critic)
        networks[group.name] = policy_numbers(policies[group.name].network, group)
    return Agents(policies, maker, path, source=source, n_envs=n_envs, networks=networks)


def policy_numbers(network: nn.Module, group: GroupSpec) -> list[int]:
    """The index of each agent's network: 0 for all agents unless a layer has weights per agent."""
    unshared = any(getattr(layer, "shared", True) is False for layer in network.modules())
    several = any(hasattr(layer, "members") for layer in network.modules())
    return list(range(group.n_agents)) if unshared or several else [0] * group.n_agents


def _of_group(
    given: TensorDictModuleBase | Mapping[str, TensorDictModuleBase], name: str, group: GroupSpec
) -> TensorDictModuleBase:
    if not isinstance(given, Mapping):
        return given
    if name not in given:
        raise ConfigError(f"no module for the group {name!r}; got modules for {sorted(given)}")
    return given[name]


def _key(module: TensorDictModuleBase, name: str) -> tuple[str, ...]:
    """The group's key in the tensordict: its name, or the root if the policy writes `action` there."""
    keys = {key if isinstance(key, tuple) else (key,) for key in getattr(module, "out_keys", ())}
    return () if (name, "action") not in keys and ("action",) in keys else (name,)
