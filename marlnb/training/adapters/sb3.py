"""agents_from_sb3: agents controlled by Stable-Baselines3 models, one for all or one per group or agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, get_args

from marlnb.errors import CheckpointError, ConfigError, unknown
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.sb3 import policy_of
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.adapters.environment import EnvLike, env_and_spec, indices_by_object
from marlnb.training.policies.agents import Agents

Algorithm = Literal["PPO", "A2C", "DQN", "RecurrentPPO"]
HOMES = {"RecurrentPPO": ("sb3_contrib", "sb3-contrib")}


def agents_from_sb3(
    models: Any | Mapping[str, Any],
    env: EnvLike,
    *,
    algorithm: Algorithm = "PPO",
    path: str | os.PathLike[str] = "runs/agents_from_sb3",
    n_envs: int = 32,
) -> Agents:
    """Agents controlled by models of Stable-Baselines3 and sb3-contrib, for example trained with SuperSuit.

    A normaliser of the training environment (VecNormalize) is not part of a model and is not applied.

    Args:
        models: one model for all agents, or models by group or agent. A model is an object, or the zip file written by
            its `save`. Stable-Baselines3 executes the pickles in a zip file: open only files that you trust.
        env: an EnvConfig, a name such as "pettingzoo/simple_spread", a torchrl EnvBase, or a function that returns an
            environment.
        algorithm: the class that loads the zip files.
        path: folder of the agents' recordings.
        n_envs: default number of environments stepped at once.
    Raises:
        ConfigError: Stable-Baselines3 is not installed, a model is not supported, names are neither groups nor
            agents, or observations have another size.
    """
    maker, spec = env_and_spec(env)
    opened: dict[str, Any] = {}
    by_agent = {agent: _loaded(given, algorithm, opened) for agent, given in _by_agent(models, spec).items()}
    policies, networks = {}, {}
    for group in spec.groups:
        policies[group.name], networks[group.name] = _group(group, spec, by_agent)
    return Agents(policies, maker, path, source="Stable-Baselines3", n_envs=n_envs, networks=networks)


def _group(group: GroupSpec, spec: EnvSpec, by_agent: Mapping[str, Any]) -> tuple[ExternalPolicy, list[int]]:
    members = indices_by_object([by_agent[agent] for agent in group.agents])
    models = [by_agent[group.agents[rows[0]]] for rows in members]
    numbers = [next(k for k, rows in enumerate(members) if index in rows) for index in range(group.n_agents)]
    return policy_of(models, members, group, spec), numbers


def _by_agent(models: Any | Mapping[str, Any], spec: EnvSpec) -> dict[str, Any]:
    if not isinstance(models, Mapping):
        return dict.fromkeys(spec.agents, models)
    group_of = {agent: group.name for group in spec.groups for agent in group.agents}
    unknown_names = sorted(set(models) - set(spec.agents) - set(spec.group_names))
    missing = sorted(agent for agent, group in group_of.items() if agent not in models and group not in models)
    if unknown_names or missing:
        raise ConfigError(
            f"models are for {sorted(models)}; name the groups {list(spec.group_names)} or the agents "
            f"{list(spec.agents)} of {spec.name}, each once"
        )
    return {agent: models[agent] if agent in models else models[group] for agent, group in group_of.items()}


def _loaded(given: Any, algorithm: str, opened: dict[str, Any]) -> Any:
    if not isinstance(given, (str, os.PathLike)):
        return given
    if algorithm not in get_args(Algorithm):
        raise ConfigError(unknown("algorithm", algorithm, get_args(Algorithm)))
    home, needed = HOMES.get(algorithm, ("stable_baselines3", "Stable-Baselines3"))
    try:
        module = import_module(home)
    except ImportError as error:
        raise ConfigError(f"a zip file of {algorithm} needs {needed}: pip install 'marlnb[sb3]'") from error
    name = os.fspath(given)
    if not any(os.path.isfile(path) for path in (name, f"{name}.zip")):
        raise CheckpointError(f"no Stable-Baselines3 model at {name}")
    if name not in opened:
        opened[name] = getattr(module, algorithm).load(name, device="cpu")
    return opened[name]
