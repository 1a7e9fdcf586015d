"""An environment whose agents are grouped as the user says: several groups as one, or one group split.

The agents, their numbers and their seeds are the environment's own; only the tensors are laid out anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from marlnb import user_code
from marlnb.config import EnvConfig
from marlnb.envs.vector import GroupStep, Step, VectorEnv, allocate_step
from marlnb.errors import ConfigError, EnvBuildError, EnvError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec, GroupSpec, LabelSpec, group_agents

Groups = Mapping[str, tuple[str, ...]]


def build_env(experiment: Experiment, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
    """Copies of an experiment's environment, its agents grouped as the experiment says.

    Args:
        env: another environment in its place, grouped in the same way.
    Raises:
        ConfigError: groups that the environment's agents cannot form.
    """
    return build_grouped(env or experiment.env, experiment.groups, n_envs, device=device)


def build_grouped(env: EnvConfig, groups: Groups | None, n_envs: int, *, device: str = "cpu") -> VectorEnv:
    """Copies of an environment, its agents grouped as `groups` says; without any, as the environment groups them.

    Raises:
        ConfigError: groups that the environment's agents cannot form.
        EnvBuildError: `build` of somebody's own raised, or returned something else.
    """
    built = _built(env, n_envs, device)
    if not groups:
        return built
    try:
        return Regrouped(built, groups)
    except BaseException:
        built.close()
        raise


def _built(env: EnvConfig, n_envs: int, device: str) -> VectorEnv:
    try:
        built: object = env.build(n_envs, device)
    except MarlnbError:
        raise
    except Exception as error:
        if (whose := user_code.describe_error(error)) is None:
            raise
        raise EnvBuildError(f"{env.name}: {type(env).__name__}.build raised {whose}") from error
    if not isinstance(built, VectorEnv):
        raise EnvBuildError(f"{env.name}: {type(env).__name__}.build must return a VectorEnv; it returned {built!r}")
    return built


class AgentSlice(NamedTuple):
    """Neighbouring agents of one group that are neighbours in another: rows `there` of `group` are rows `here`."""

    group: str
    there: slice
    here: slice


class Regrouped(VectorEnv):
    """`env` with other groups; every step costs one copy of its tensors.

    A label of agents whose group has been taken apart is told for each agent: `<label>_<agent>`, `[env]`.

    Args:
        groups: the agents of each group; every agent of `env` is in one.
    Raises:
        ConfigError: an agent is missing, named twice or not there, or a group's agents have different spaces.
    """

    def __init__(self, env: VectorEnv, groups: Groups) -> None:
        self.env, self.n_envs, self.device = env, env.n_envs, env.device
        self._labels = {label.name: _label_specs(label, env.spec, groups) for label in env.spec.labels}
        labels = tuple(label for told in self._labels.values() for label in told)
        self.spec = replace(env.spec, groups=_group_specs(env.spec, groups), labels=labels)
        self._runs = {group.name: list(_runs(group.agents, env.spec)) for group in self.spec.groups}
        self._step = allocate_step(self.spec, self.n_envs, self.device)
        self._actions = {
            group.name: torch.zeros(
                (self.n_envs, group.n_agents, *group.action.shape),
                dtype=getattr(torch, group.action.dtype),
                device=self.device,
            )
            for group in env.spec.groups
        }

    def reset(self, seed: int) -> Step:
        return self._laid_out(self.env.reset(seed))

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        for group in self.spec.groups:
            action, shape = actions.get(group.name), (self.n_envs, group.n_agents, *group.action.shape)
            if action is None or tuple(action.shape) != shape:
                found = {name: list(value.shape) for name, value in actions.items()}
                raise EnvError(f"{self.spec.name} needs actions {list(shape)} of the group {group.name!r}; got {found}")
            for run in self._runs[group.name]:
                self._actions[run.group][:, run.there] = action[:, run.here]
        return self._laid_out(self.env.step(self._actions))

    def state_dict(self) -> dict[str, Tensor] | None:
        return self.env.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        return self._laid_out(self.env.load_state_dict(state))

    def labels(self) -> dict[str, Tensor]:
        return self._told(self.env.labels())

    def label_state(self) -> Tensor | None:
        return self.env.label_state()

    def labels_of(self, moments: Tensor) -> dict[str, Tensor]:
        return self._told(self.env.labels_of(moments))

    def render(self, index: int = 0) -> np.ndarray:
        return self.env.render(index)

    def announce(self, folder: Path) -> None:
        self.env.announce(folder)

    def hurry(self) -> None:
        self.env.hurry()

    def close(self) -> None:
        self.env.close()

    def _laid_out(self, step: Step) -> Step:
        for name, runs in self._runs.items():
            rows = self._step.groups[name]
            for run in runs:
                theirs = step.groups[run.group]
                for field in _FIELDS:
                    value = getattr(theirs, field)
                    if value is not None:
                        getattr(rows, field)[:, run.here] = value[:, run.there]
        return replace(step, groups=self._step.groups)

    def _told(self, labels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        told: dict[str, Tensor] = {}
        for name, value in labels.items():
            specs = self._labels[name]
            if len(specs) == 1 and specs[0].name == name:
                told[name] = value
            else:
                told |= {spec.name: value[:, agent] for agent, spec in enumerate(specs)}
        return told


_FIELDS = tuple(field.name for field in fields(GroupStep))


def _group_specs(spec: EnvSpec, groups: Groups) -> tuple[GroupSpec, ...]:
    """Groups of these agents, each with the spaces that all its agents have."""
    own = {agent: group for group in spec.groups for agent in group.agents}
    try:
        named = group_agents(spec.agents, groups)
    except ConfigError as error:
        raise ConfigError(f"{spec.name}: {error}") from error
    found = []
    for name, agents in named.items():
        if not agents:
            raise ConfigError(f"{spec.name}: group {name!r} has no agents; those there are {list(spec.agents)}")
        first = own[agents[0]]
        for agent in agents:
            _check_alike(spec.name, name, agents[0], first, agent, own[agent])
        names = {own[agent].observation.names for agent in agents}
        observation = first.observation if len(names) == 1 else replace(first.observation, names=())
        choices = {own[agent].action.names for agent in agents}
        action = first.action if len(choices) == 1 else replace(first.action, names=())
        found.append(GroupSpec(name, agents, observation, action, first.has_action_mask))
    return tuple(found)


def _check_alike(env: str, name: str, one: str, first: GroupSpec, other: str, second: GroupSpec) -> None:
    """Raises ConfigError unless two agents have the same spaces, whatever their features are called."""
    for what, mine, theirs in (
        ("observations of shape", first.observation.shape, second.observation.shape),
        ("observations of dtype", first.observation.dtype, second.observation.dtype),
        ("actions", replace(first.action, names=()), replace(second.action, names=())),
        ("an action mask:", first.has_action_mask, second.has_action_mask),
    ):
        if mine != theirs:
            raise ConfigError(
                f"{env}: group {name!r} cannot hold {one!r} and {other!r}: {one!r} has {what} {mine}, "
                f"{other!r} {theirs}; the agents of a group have the same spaces"
            )


def _runs(agents: tuple[str, ...], spec: EnvSpec) -> Iterator[AgentSlice]:
    """Where each of these agents is found in the groups of `spec`, neighbours together."""
    places = {agent: (group.name, row) for group in spec.groups for row, agent in enumerate(group.agents)}
    start = 0
    for here in range(1, len(agents) + 1):
        group, row = places[agents[start]]
        if here == len(agents) or places[agents[here]] != (group, row + here - start):
            yield AgentSlice(group, slice(row, row + here - start), slice(start, here))
            start = here


def _label_specs(label: LabelSpec, spec: EnvSpec, groups: Groups) -> tuple[LabelSpec, ...]:
    """A label as it is told of the new groups: of the group that has the same agents, else of each agent."""
    if label.group is None:
        return (label,)
    agents = spec.group(label.group).agents
    same = [name for name, members in groups.items() if tuple(members) == agents]
    if same:
        return (replace(label, group=same[0]),)
    return tuple(LabelSpec(f"{label.name}_{agent}", None, label.classes) for agent in agents)
