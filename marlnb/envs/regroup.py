"""Regrouped environments: several groups merged into one, or one group split, as the user defines.

Agents, their order in the environment, and seeds do not change; only the tensors are arranged differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.vector import GroupStep, Step, VectorEnv, allocate_step
from marlnb.errors import ConfigError, EnvBuildError, EnvError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.plugins import user_code
from marlnb.specs import EnvSpec, GroupSpec, LabelSpec, check_group_names, group_agents

Groups = Mapping[str, tuple[str, ...]]


def build_env(experiment: Experiment, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
    """The envs of an experiment, with its groups.

    Args:
        experiment: defines the environment and the groups.
        n_envs: B.
        device: where the step's tensors are.
        env: another environment to use instead, with the same groups.
    Raises:
        ConfigError: the environment's agents cannot form these groups.
    """
    return build_grouped(env or experiment.env, experiment.groups, n_envs, device=device)


def build_grouped(env: EnvConfig, groups: Groups | None, n_envs: int, *, device: str = "cpu") -> VectorEnv:
    """The envs of an environment with these groups; without any, with the environment's own groups.

    Raises:
        ConfigError: the environment's agents cannot form these groups.
        EnvBuildError: the `build` of a user's config raised, or did not return a VectorEnv.
    """
    built = _build(env, n_envs, device)
    try:
        grouped = Regrouped(built, groups) if groups else built
        check_group_names(env.name, grouped.spec.group_names)
        return grouped
    except BaseException:
        built.close()
        raise


def _build(env: EnvConfig, n_envs: int, device: str) -> VectorEnv:
    try:
        built: object = env.build(n_envs, device)
    except MarlnbError:
        raise
    except Exception as error:
        if (cause := user_code.describe_error(error)) is None:
            raise
        raise EnvBuildError(f"{env.name}: {type(env).__name__}.build raised {cause}") from error
    if not isinstance(built, VectorEnv):
        raise EnvBuildError(f"{env.name}: {type(env).__name__}.build must return a VectorEnv; it returned {built!r}")
    return built


class AgentSlice(NamedTuple):
    """Adjacent agents of a new group that are also adjacent in one group of the wrapped environment.

    Attributes:
        group: the group in the wrapped environment.
        source: their rows there.
        target: their rows in the new group.
    """

    group: str
    source: slice
    target: slice


class Regrouped(VectorEnv):
    """`env` with other groups; every step copies its tensors once.

    A label of a group that is split becomes one label per agent: `<label>_<agent>`, `[env]`.

    Args:
        env: the wrapped environment.
        groups: the agents of each group; every agent of `env` is in one.
    Raises:
        ConfigError: an agent is missing, named twice or unknown, or a group's agents have different spaces.
    """

    def __init__(self, env: VectorEnv, groups: Groups) -> None:
        self.env, self.n_envs, self.device = env, env.n_envs, env.device
        self._label_specs = {label.name: _label_specs(label, env.spec, groups) for label in env.spec.labels}
        labels = tuple(label for specs in self._label_specs.values() for label in specs)
        self.spec = replace(env.spec, groups=_group_specs(env.spec, groups), labels=labels)
        self._slices = {group.name: list(_agent_slices(group.agents, env.spec)) for group in self.spec.groups}
        self.resets_each = env.resets_each
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
        return self._regroup(self.env.reset(seed))

    def reset_each(self, seeds: Tensor) -> Step:
        return self._regroup(self.env.reset_each(seeds))

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        for group in self.spec.groups:
            action, shape = actions.get(group.name), (self.n_envs, group.n_agents, *group.action.shape)
            is_continuous = group.action.kind == "continuous"
            if action is None or tuple(action.shape) != shape or action.is_floating_point() != is_continuous:
                got = {name: f"{value.dtype} {list(value.shape)}" for name, value in actions.items()}
                raise EnvError(
                    f"{self.spec.name} needs {group.action.dtype} actions {list(shape)} of the group {group.name!r}; "
                    f"got {got}"
                )
            for part in self._slices[group.name]:
                self._actions[part.group][:, part.source] = action[:, part.target]
        return self._regroup(self.env.step(self._actions))

    def state_dict(self) -> dict[str, Tensor] | None:
        return self.env.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        return self._regroup(self.env.load_state_dict(state))

    def labels(self) -> dict[str, Tensor]:
        return self._regroup_labels(self.env.labels())

    def label_state(self) -> Tensor | None:
        return self.env.label_state()

    def labels_of(self, states: Tensor) -> dict[str, Tensor]:
        return self._regroup_labels(self.env.labels_of(states))

    def render(self, index: int = 0) -> np.ndarray:
        return self.env.render(index)

    def draw_ends(self) -> None:
        self.env.draw_ends()

    def end_picture(self, index: int = 0) -> np.ndarray | None:
        return self.env.end_picture(index)

    def close(self) -> None:
        self.env.close()

    def _regroup(self, step: Step) -> Step:
        for name, slices in self._slices.items():
            target = self._step.groups[name]
            for part in slices:
                source = step.groups[part.group]
                for field in _FIELDS:
                    value = getattr(source, field)
                    if value is not None:
                        getattr(target, field)[:, part.target] = value[:, part.source]
        return replace(step, groups=self._step.groups)

    def _regroup_labels(self, labels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        regrouped: dict[str, Tensor] = {}
        for name, value in labels.items():
            specs = self._label_specs[name]
            if len(specs) == 1 and specs[0].name == name:
                regrouped[name] = value
            else:
                regrouped |= {spec.name: value[:, agent] for agent, spec in enumerate(specs)}
        return regrouped


_FIELDS = tuple(field.name for field in fields(GroupStep))


def _group_specs(spec: EnvSpec, groups: Groups) -> tuple[GroupSpec, ...]:
    """Specs of the new groups, with the spaces of their agents."""
    group_of = {agent: group for group in spec.groups for agent in group.agents}
    try:
        named = group_agents(spec.agents, groups)
    except ConfigError as error:
        raise ConfigError(f"{spec.name}: {error}") from error
    specs = []
    for name, agents in named.items():
        if not agents:
            raise ConfigError(f"{spec.name}: group {name!r} has no agents; valid: {list(spec.agents)}")
        first = group_of[agents[0]]
        for agent in agents:
            _check_same_spaces(spec.name, name, agents[0], first, agent, group_of[agent])
        names = {group_of[agent].observation.names for agent in agents}
        observation = first.observation if len(names) == 1 else replace(first.observation, names=())
        choices = {group_of[agent].action.names for agent in agents}
        action = first.action if len(choices) == 1 else replace(first.action, names=())
        specs.append(GroupSpec(name, agents, observation, action, first.has_action_mask))
    return tuple(specs)


def _check_same_spaces(env: str, name: str, agent: str, group: GroupSpec, other: str, other_group: GroupSpec) -> None:
    """Raises ConfigError unless two agents have the same spaces; the names of features may differ."""
    for what, value, other_value in (
        ("observations of shape", group.observation.shape, other_group.observation.shape),
        ("observations of dtype", group.observation.dtype, other_group.observation.dtype),
        ("actions", replace(group.action, names=()), replace(other_group.action, names=())),
        ("an action mask:", group.has_action_mask, other_group.has_action_mask),
    ):
        if value != other_value:
            raise ConfigError(
                f"{env}: group {name!r} cannot contain {agent!r} and {other!r}: {agent!r} has {what} {value}, "
                f"{other!r} has {other_value}; the agents of a group must have the same spaces"
            )


def _agent_slices(agents: tuple[str, ...], spec: EnvSpec) -> Iterator[AgentSlice]:
    """The slices of these agents in the groups of `spec`; adjacent agents share a slice."""
    positions = {agent: (group.name, row) for group in spec.groups for row, agent in enumerate(group.agents)}
    start = 0
    for stop in range(1, len(agents) + 1):
        group, row = positions[agents[start]]
        if stop == len(agents) or positions[agents[stop]] != (group, row + stop - start):
            yield AgentSlice(group, slice(row, row + stop - start), slice(start, stop))
            start = stop


def _label_specs(label: LabelSpec, spec: EnvSpec, groups: Groups) -> tuple[LabelSpec, ...]:
    """A label's specs for the new groups: one for the group with the same agents, else one per agent."""
    if label.group is None:
        return (label,)
    agents = spec.group(label.group).agents
    same = [name for name, members in groups.items() if tuple(members) == agents]
    if same:
        return (replace(label, group=same[0]),)
    return tuple(LabelSpec(f"{label.name}_{agent}", None, label.classes) for agent in agents)
