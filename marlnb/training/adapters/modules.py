"""agents_from_module: agents controlled by torch modules, one per group or one per agent."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import nn

from marlnb.errors import ConfigError, unknown
from marlnb.models.adapters.critic import ExternalCritic
from marlnb.models.adapters.module_network import ModuleNetwork
from marlnb.models.adapters.parameters import Kind, distribution_of
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.tensordict_policy import network_of
from marlnb.models.networks.by_agent import ByAgent
from marlnb.models.networks.network import Network
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.adapters.environment import EnvLike, env_and_spec, indices_by_object
from marlnb.training.policies.agents import Agents

Modules = nn.Module | Mapping[str, nn.Module]
BY_NAME = (Mapping, nn.ModuleDict)  # types of modules by group or by agent; torch's is no Mapping


def agents_from_module(
    modules: Modules | Mapping[str, Modules],
    env: EnvLike,
    *,
    distribution: Kind | Mapping[str, Kind] | None = None,
    critics: Mapping[str, nn.Module] | nn.ModuleDict | None = None,
    cross_agent: bool | None = None,
    recurrent_shape: tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
    path: str | os.PathLike[str] = "runs/agents_from_module",
    source: str = "modules",
    n_envs: int = 32,
) -> Agents:
    """Agents controlled by any torch modules.

    A module shared by agents is called on `[batch, agent, *observation]` and returns `[batch, agent, parameter]`, or a
    tuple such as `(mean, log_std)`. torchrl's multi-agent networks work without changes. A module of one agent is
    called on `[batch, 1, *observation]`; its sites are `<group>/actor/<agent>/<layer>`.

    Args:
        modules: {group: module} or {group: {agent: module}}; or one module if there is one group.
        env: an EnvConfig, a registered name such as "mpe/simple_spread", a torchrl EnvBase or a function that returns
            one.
        distribution: meaning of the outputs: categorical (logits; the default for choices), greedy (Q values),
            tanh_normal and normal ((mean, log_std)), tanh and direct (an action). Required for continuous actions.
        critics: by group, modules that map `[batch, agent, *observation]` to `[batch, agent, 1]`.
        cross_agent: whether an agent's output can depend on another agent's observation; None: tested by changing
            inputs.
        recurrent_shape: (layer, unit) of an agent's state, for all groups or by group, for recurrent modules. They are
            called on (observation, state `[batch, agent, layer, unit]`) and return (output, next state).
        path: folder of the agents' recordings.
        source: a description of where the agents come from.
        n_envs: default number of environments stepped at once.
    Raises:
        ConfigError: the modules do not fit the groups, agents, observations or actions.
        ShapeError: a module's output has another shape.
        SiteError: no layer of a module can be recorded.
    """
    maker, spec = env_and_spec(env)
    by_group = _by_group(modules, spec)
    if isinstance(critics, nn.Module) and not isinstance(critics, BY_NAME):
        raise ConfigError(f"critics must be {{group: module}}; got {type(critics).__name__}")
    for option, values in (("distribution", distribution), ("critics", critics), ("recurrent_shape", recurrent_shape)):
        for name in values if isinstance(values, BY_NAME) else ():
            if name not in spec.group_names:
                raise ConfigError(f"{option}: {unknown(f'group of {spec.name}', str(name), spec.group_names)}")
    policies, networks = {}, {}
    for group in spec.groups:
        given = by_group[group.name]
        kind = _kind(distribution, group)
        family, parameters, greedy = distribution_of(kind, group.action)
        state_shape = recurrent_shape.get(group.name) if isinstance(recurrent_shape, Mapping) else recurrent_shape
        actor = _network(given, group, cross_agent, state_shape)
        critic = None
        if critics is not None and group.name in critics:
            critic = ExternalCritic(group, network_of([critics[group.name]], group), spec)
        policies[group.name] = ExternalPolicy(group, actor, family, parameters=parameters, greedy=greedy, critic=critic)
        networks[group.name] = network_numbers(given, group)
    return Agents(policies, maker, path, source=source, n_envs=n_envs, networks=networks)


def network_numbers(given: Modules, group: GroupSpec) -> list[int]:
    """The index of each agent's network."""
    if isinstance(given, BY_NAME):
        members = indices_by_object([given[agent] for agent in group.agents])
        return [next(k for k, rows in enumerate(members) if index in rows) for index in range(group.n_agents)]
    shared = getattr(given, "share_params", True)
    return [0] * group.n_agents if shared else list(range(group.n_agents))


def _by_group(modules: Modules | Mapping[str, Modules], spec: EnvSpec) -> dict[str, Modules]:
    if isinstance(modules, nn.Module) and not isinstance(modules, BY_NAME):
        if len(spec.groups) > 1:
            raise ConfigError(
                f"{spec.name} has the groups {list(spec.group_names)}; pass {{group: module}} instead of one module"
            )
        return {spec.groups[0].name: modules}
    if not isinstance(modules, BY_NAME):
        raise ConfigError(f"modules must be a module, or modules by group; got {type(modules).__name__}")
    given = dict(modules.items())
    if set(given) != set(spec.group_names):
        raise ConfigError(f"modules are for {sorted(given)}; expected groups of {spec.name}: {list(spec.group_names)}")
    return given  # type: ignore[return-value]


def _kind(distribution: Kind | Mapping[str, Kind] | None, group: GroupSpec) -> Kind:
    kind = distribution.get(group.name) if isinstance(distribution, Mapping) else distribution
    if kind is None:
        if group.action.kind == "continuous":
            raise ConfigError(
                f"the actions of {group.name!r} are continuous and need distribution=; valid: 'tanh_normal', "
                "'normal', 'tanh', 'direct'"
            )
        return "categorical"
    return kind


def _network(
    given: Modules, group: GroupSpec, cross_agent: bool | None, state_shape: tuple[int, int] | None
) -> Network:
    if isinstance(given, BY_NAME):
        return _by_agent(dict(given.items()), group, state_shape)
    if state_shape is not None:
        return _module_network(given, group, group.n_agents, state_shape, cross_agent)
    network = network_of([given], group)
    if cross_agent is not None:
        network.cross_agent = cross_agent
    return network


def _by_agent(given: Mapping[str, nn.Module], group: GroupSpec, state_shape: tuple[int, int] | None) -> Network:
    if set(given) != set(group.agents):
        raise ConfigError(f"modules are for {sorted(given)}; expected agents of {group.name!r}: {list(group.agents)}")
    indices = indices_by_object([given[agent] for agent in group.agents])
    networks = [_module_network(given[group.agents[rows[0]]], group, len(rows), state_shape) for rows in indices]
    return ByAgent(group.agents, indices, networks)


def _module_network(
    module: nn.Module,
    group: GroupSpec,
    n_agents: int,
    state_shape: tuple[int, int] | None,
    cross_agent: bool | None = None,
) -> ModuleNetwork:
    shape, dtype = group.observation.shape, getattr(torch, group.observation.dtype)
    return ModuleNetwork(module, n_agents, shape, dtype=dtype, cross_agent=cross_agent, recurrent_shape=state_shape)
