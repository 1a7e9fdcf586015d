"""agents_from_module: agents out of plain modules, one that a group's agents share or one for each."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import nn

from marlnb.errors import ConfigError
from marlnb.models.adapters.module_network import ModuleNetwork
from marlnb.models.adapters.parameters import Kind, distribution_of
from marlnb.models.adapters.critic import ExternalCritic
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.tensordict_policy import network_of
from marlnb.models.networks.by_agent import ByAgent
from marlnb.models.networks.network import Network
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.adapters.environment import EnvLike, env_maker, spec_of
from marlnb.training.policies.agents import Agents

Modules = nn.Module | Mapping[str, nn.Module]


def agents_from_module(
    modules: Modules | Mapping[str, Modules],
    env: EnvLike,
    *,
    distribution: Kind | Mapping[str, Kind] | None = None,
    critics: Mapping[str, nn.Module] | None = None,
    cross_agent: bool | None = None,
    recurrent_shape: tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
    path: str | os.PathLike[str] = "runs/agents_from_module",
    source: str = "modules",
    n_envs: int = 32,
) -> Agents:
    """Agents that act by modules of any make.

    A module that agents share is called on `[batch, agent, *observation]` and returns `[batch, agent, parameter]` (or a
    tuple, as `(mean, log_std)`); torchrl's MultiAgentMLP and the like are taken as they are. One module an agent is
    called on `[batch, 1, *observation]`; its sites are `<group>/actor/<agent>/<layer>`.

    Args:
        modules: by group a module, or by agent's name; a bare module where there is one group.
        env: an EnvConfig, a registered name as "mpe/simple_spread", a torchrl EnvBase or a function that makes one.
        distribution: what the outputs are: categorical (logits; the usual one for choices), greedy (Q values),
            tanh_normal and normal ((mean, log_std)), tanh and direct (an action); continuous actions: it must be said.
        critics: by group, modules from `[batch, agent, *observation]` to `[batch, agent, 1]`.
        cross_agent: whether a module lets one agent's output depend on another's observation; None: gradients of a
            trial tell.
        recurrent_shape: (layer, unit) of an agent's state, for all groups or by group, where modules remember: they are
            called on (observation, state `[batch, agent, layer, unit]`) and return (output, the state that leaves).
        path: folder of the recordings made of them.
    Raises:
        ConfigError: groups, agents, observations or actions that do not fit. ShapeError: a module returns something
            else. SiteError: nothing in a module can be seen.
    """
    maker = env_maker(env)
    spec = spec_of(maker)
    by_group = _by_group(modules, spec)
    made, networks = {}, {}
    for group in spec.groups:
        given = by_group[group.name]
        kind = _kind(distribution, group)
        found, parameters, greedy = distribution_of(kind, group.action)
        memory = recurrent_shape.get(group.name) if isinstance(recurrent_shape, Mapping) else recurrent_shape
        actor = _network(given, group, cross_agent, memory)
        critic = _critic((critics or {}).get(group.name), group, spec)
        made[group.name] = ExternalPolicy(group, actor, found, parameters=parameters, greedy=greedy, critic=critic)
        networks[group.name] = network_numbers(given, group)
    return Agents(made, maker, path, source=source, n_envs=n_envs, networks=networks)


def network_numbers(given: Modules, group: GroupSpec) -> list[int]:
    """For each agent the number of its network."""
    if isinstance(given, Mapping):
        order = list(dict.fromkeys(id(given[agent]) for agent in group.agents))
        return [order.index(id(given[agent])) for agent in group.agents]
    shared = getattr(given, "share_params", True)
    return [0] * group.n_agents if shared else list(range(group.n_agents))


def _by_group(modules: Modules | Mapping[str, Modules], spec: EnvSpec) -> dict[str, Modules]:
    if isinstance(modules, nn.Module) and not isinstance(modules, nn.ModuleDict):
        if len(spec.groups) > 1:
            raise ConfigError(
                f"one module for {spec.name} with the groups {list(spec.group_names)}: say {{group: module}}"
            )
        return {spec.groups[0].name: modules}
    if not isinstance(modules, (Mapping, nn.ModuleDict)):
        raise ConfigError(f"a module, or modules by group, is needed; got {type(modules).__name__}")
    given = dict(modules.items())
    if set(given) != set(spec.group_names):
        raise ConfigError(f"modules are for {sorted(given)}; the groups of {spec.name} are {list(spec.group_names)}")
    return given  # type: ignore[return-value]


def _kind(distribution: Kind | Mapping[str, Kind] | None, group: GroupSpec) -> Kind:
    kind = distribution.get(group.name) if isinstance(distribution, Mapping) else distribution
    if kind is None:
        if group.action.kind == "continuous":
            raise ConfigError(
                f"the actions of {group.name!r} are continuous: say what the module's output is, distribution="
                "'tanh_normal', 'normal', 'tanh' or 'direct'"
            )
        return "categorical"
    return kind


def _network(given: Modules, group: GroupSpec, cross_agent: bool | None, memory: tuple[int, int] | None) -> Network:
    if isinstance(given, (Mapping, nn.ModuleDict)):
        return _one_each(dict(given.items()), group, memory)
    if memory is not None:
        return _module_network(given, group, group.n_agents, memory, cross_agent)
    network = network_of([given], group)
    if cross_agent is not None:
        network.cross_agent = cross_agent
    return network


def _one_each(given: Mapping[str, nn.Module], group: GroupSpec, memory: tuple[int, int] | None) -> Network:
    if set(given) != set(group.agents):
        raise ConfigError(f"modules are for {sorted(given)}; the agents of {group.name!r} are {list(group.agents)}")
    members: dict[int, list[int]] = {}
    for index, agent in enumerate(group.agents):
        members.setdefault(id(given[agent]), []).append(index)
    indices = list(members.values())
    networks = [_module_network(given[group.agents[rows[0]]], group, len(rows), memory) for rows in indices]
    return ByAgent(group.agents, indices, networks)


def _module_network(
    module: nn.Module,
    group: GroupSpec,
    n_agents: int,
    memory: tuple[int, int] | None,
    cross_agent: bool | None = None,
) -> ModuleNetwork:
    return ModuleNetwork(
        module,
        n_agents,
        group.observation.shape,
        dtype=getattr(torch, group.observation.dtype),
        cross_agent=cross_agent,
        recurrent_shape=memory,
    )


def _critic(module: nn.Module | None, group: GroupSpec, spec: EnvSpec) -> ExternalCritic | None:
    return None if module is None else ExternalCritic(group, network_of([module], group), spec)
