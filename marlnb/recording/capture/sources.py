"""Sources: which tensors are recorded at each step, where they go in the file, and how they are read.

One list of sources per recording defines the file's layout, the plan's sizes and the recorder's copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import RecordingError, SiteError
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.low_precision import LowPrecision
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.layout import Field
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.collect.episodes import TimeStep

LabelFn = Callable[[TimeStep], Tensor]
Pick = slice | torch.Tensor | None
INNER_AXES = {"action": "component", "logits": "parameter", "action_mask": "choice"}


@dataclass(frozen=True)
class Source:
    """One field and how to read its tensor.

    Attributes:
        field: where it is stored.
        get: reads the tensor `[env, ...]` from a time step, or from the step that follows it.
    """

    field: Field
    get: Callable[[Any], Tensor]


@dataclass(frozen=True)
class Selection:
    """The recorded agents of one group.

    Attributes:
        group: the group, with all its agents.
        indices: of the recorded agents along the group's agent axis, ascending.
    """

    group: GroupSpec
    indices: tuple[int, ...]

    @property
    def pick(self) -> Pick:
        """An index that selects the agents along their axis: None for all, a slice where they are adjacent."""
        first, last = self.indices[0], self.indices[-1]
        if len(self.indices) == self.group.n_agents:
            return None
        if self.indices == tuple(range(first, last + 1)):
            return slice(first, last + 1)
        return torch.tensor(self.indices)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.group.agents[index] for index in self.indices)

    def of_site(self, site: Site) -> Selection | None:
        """The recorded agents among those of a site, with indices along its agent axis; None where there are none."""
        if site.agents is None:
            return self
        indices = tuple(index for index, agent in enumerate(site.agents) if agent in self.indices)
        names = tuple(self.group.agents[agent] for agent in site.agents)
        return Selection(replace(self.group, agents=names), indices) if indices else None

    def field_of(self, site: Site, dtype: str) -> tuple[Field, Pick]:
        """The field of a site's activations, and the index of the recorded agents along the site's agent axis.

        Raises:
            RecordingError: no recorded agent has the site.
        """
        chosen = self.of_site(site)
        if chosen is None:
            raise RecordingError(f"{site.name} belongs to none of the recorded agents {list(self.agents)}")
        agents = () if site.agents is None else chosen.agents
        shape = (len(chosen.indices), site.n_units)
        field = Field(f"activations/{site.name}", ("agent", "unit"), shape, dtype, self.group.name, agents)
        return field, chosen.pick


def take_agents(tensor: Tensor, pick: Pick) -> Tensor:
    """The recorded agents of `[row, agent, ...]`."""
    return tensor if pick is None else tensor[:, pick]


def capture_if_any(
    policies: Policy | Mapping[str, Policy], names: Sequence[str]
) -> AbstractContextManager[dict[str, Tensor]]:
    """`capture`, or an empty dict where there is nothing to capture."""
    return capture(policies, names) if names else nullcontext({})


def computed_dtype(policy: Policy, site: Site) -> str:
    """The dtype in which a site is computed; it may be less precise than the one in which it is stored."""
    low = [module for module in policy.modules() if isinstance(module, LowPrecision)]
    is_low = any(site.module is module for network in low for module in network.modules())
    return str(LowPrecision.dtype if is_low else torch.float32).removeprefix("torch.")


T = Source(Field("steps/t", (), (), "int64"), lambda time_step: time_step.t)


def time_step_sources(
    time_step: TimeStep,
    selections: Sequence[Selection],
    policies: Mapping[str, Policy],
    sites: Sequence[Site],
    activations: Mapping[str, Tensor],
    labels: Mapping[str, LabelFn],
    dtype: str,
) -> list[Source]:
    """Everything that is read before the environment steps, except `T`. `time_step` is an example of its shapes.

    Raises:
        SiteError: a site did not fire when the policies acted.
        RecordingError: a label cannot be recorded.
    """
    silent = sorted(site.name for site in sites if site.name not in activations)
    if silent:
        raise SiteError(f"these sites never fired while the policies acted: {', '.join(silent)}")
    sources: list[Source] = []
    for selection in selections:
        sources += _group_sources(time_step, selection, policies[selection.group.name], dtype)
    by_group = {selection.group.name: selection for selection in selections}
    for site in sites:
        field, pick = by_group[site.group].field_of(site, dtype)
        sources.append(Source(field, _picked(_activation(activations, site.name), pick)))
    if time_step.state is not None:
        dims = _axes(time_step.state.shape[1:], "feature")
        sources.append(_source("steps/state", dims, lambda time_step: time_step.state, time_step))
    sources += _label_sources(time_step, selections, labels)
    return sources


def step_sources(step: Step, selections: Sequence[Selection]) -> list[Source]:
    """Everything that is read after the environment has stepped. `step` is an example of its shapes."""
    sources = []
    for selection in selections:
        name = selection.group.name
        for field in ("reward", "terminated", "truncated"):
            get = _picked(_of_step(name, field), selection.pick)
            sources.append(_source(f"steps/{name}/{field}", ("agent",), get, step, name))
    return sources


def _picked(get: Callable[[Any], Tensor], pick: Pick) -> Callable[[Any], Tensor]:
    """`get`, restricted to the recorded agents."""
    return get if pick is None else lambda time_step: get(time_step)[:, pick]


def _group_sources(time_step: TimeStep, selection: Selection, policy: Policy, dtype: str) -> Iterator[Source]:
    name, pick = selection.group.name, selection.pick
    getters: dict[str, Callable[[TimeStep], Any]] = {
        "observation": lambda time_step: time_step.observation[name],
        "action": lambda time_step: time_step.output[name].action,
        "logits": lambda time_step: time_step.output[name].logits,
        "log_prob": lambda time_step: time_step.output[name].log_prob,
        "alive": lambda time_step: time_step.alive[name],
        "acting": lambda time_step: time_step.acting[name],
    }
    if time_step.action_mask[name] is not None:
        getters["action_mask"] = lambda time_step: time_step.action_mask[name]
    for field, get in getters.items():
        inner = get(time_step).shape[2:]
        if 0 in inner:  # the logits of a policy that has no parameters of a distribution
            continue
        dims = ("agent", *_axes(inner, INNER_AXES.get(field, "feature")))
        yield _source(f"steps/{name}/{field}", dims, _picked(get, pick), time_step, name)
    if time_step.recurrent[name] is not None:
        path = f"recurrent/{name}/{recurrent_site(policy, 'actor')}"
        get_state = _picked(lambda time_step: time_step.recurrent[name], pick)
        yield _source(path, ("agent", "layer", "unit"), get_state, time_step, name, dtype)


def recurrent_site(policy: Policy, part: str) -> str:
    """`<part>/<layer>` of the recurrent site, or `<part>/state` where there is none or more than one."""
    names = [site.name for site in policy.sites() if site.kind == "recurrent" and site.part == part]
    return names[0].split("/", 1)[1] if len(names) == 1 else f"{part}/state"


def _label_sources(
    time_step: TimeStep, selections: Sequence[Selection], labels: Mapping[str, LabelFn]
) -> Iterator[Source]:
    """The user's labels, and the environment's own where it computes them at each step only."""
    spec = time_step.env.spec
    groups = {label.name: label.group for label in spec.labels}
    duplicates = sorted(set(labels) & set(groups))
    if duplicates:
        raise RecordingError(f"{spec.name} already has labels of these names: {duplicates}; choose other names")
    names = {*labels, *groups}
    below = sorted((name, other) for name in names for other in names if other.startswith(f"{name}/"))
    if below:
        raise RecordingError("labels {!r} and {!r} cannot be in one file; choose other names".format(*below[0]))
    built_in = {} if computes_labels_later(time_step.env) else {name: _label(name) for name in time_step.labels}
    recorded = {selection.group.name: selection for selection in selections}
    for name, function in {**built_in, **labels}.items():
        value = _checked_label(name, function(time_step), time_step.env.n_envs)
        if value.ndim == 1:
            yield _source(f"labels/{name}", (), function, time_step)
            continue
        group = groups.get(name) or group_of_label(name, value.shape[1], spec)
        if group in recorded:
            get = _picked(function, recorded[group].pick)
            yield _source(f"labels/{name}", ("agent",), get, time_step, group)


def computes_labels_later(env: VectorEnv) -> bool:
    """Whether the environment's labels can be computed for many time steps at once."""
    return bool(env.spec.labels) and env.label_state() is not None


# A function makes each getter, since a lambda in a loop would read the loop's last value.
def _activation(activations: Mapping[str, Tensor], name: str) -> Callable[[TimeStep], Tensor]:
    return lambda time_step: activations[name]


def _of_step(group: str, field: str) -> Callable[[Step], Tensor]:
    return lambda step: getattr(step.groups[group], field)


def _label(name: str) -> LabelFn:
    return lambda time_step: time_step.labels[name]


def _checked_label(name: str, value: object, n_envs: int) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim not in (1, 2) or len(value) != n_envs:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise RecordingError(f"label {name!r} must be a tensor [env] or [env, agent] with {n_envs} envs; got {got}")
    return value


def group_of_label(name: str, n_agents: int, spec: EnvSpec) -> str:
    """The group whose agents a user's label has: named by the label's prefix, or the only one of that size.

    Raises:
        RecordingError: no group has as many agents, or several do and the name chooses none.
    """
    prefix = name.split("/")[0]
    matches = [group.name for group in spec.groups if group.n_agents == n_agents]
    if prefix in matches:
        return prefix
    if len(matches) != 1:
        sizes = {group.name: group.n_agents for group in spec.groups}
        raise RecordingError(
            f"label {name!r} has {n_agents} agents, and the groups have {sizes}; "
            f"name it '<group>/{name}' to choose its group"
        )
    return matches[0]


def field_of_rows(
    path: str, shape: tuple[int, ...], dtype: str, spec: EnvSpec, sites: Sequence[Site], activation_dtype: str
) -> Field:
    """The field of rows that were gathered by a collector or a training run.

    Args:
        path: of the dataset.
        shape: of one row.
        dtype: of the rows; activations and recurrent states are stored as `activation_dtype`.
        sites: the recorded sites.
    """
    top, _, rest = path.partition("/")
    group = rest.split("/")[0]
    if path == "steps/state":
        return Field(path, _axes(shape, "feature"), shape, dtype)
    if top == "labels":
        label = next(label for label in spec.labels if label.name == rest)
        return Field(path, ("agent",) if label.group else (), shape, dtype, label.group or "")
    if top == "activations":
        site = next(site for site in sites if site.name == rest)
        members = spec.group(group).agents
        agents = () if site.agents is None else tuple(members[index] for index in site.agents)
        return Field(path, ("agent", "unit"), shape, activation_dtype, group, agents)
    if top == "recurrent":
        return Field(path, ("agent", "layer", "unit"), shape, activation_dtype, group)
    inner = INNER_AXES.get(rest.split("/")[-1])
    dims = ("agent", inner) if inner and len(shape) == 2 else observation_dims(shape[1:])[: len(shape)]
    return Field(path, dims, shape, dtype, group)


def observation_dims(shape: Sequence[int]) -> tuple[str, ...]:
    """The axes of observations after `row`."""
    return ("agent", *_axes(shape, "feature"))


def _axes(shape: Sequence[int], name: str) -> tuple[str, ...]:
    return (name,) if len(shape) == 1 else tuple(f"{name}_{axis}" for axis in range(len(shape)))


def _source(
    path: str,
    dims: tuple[str, ...],
    get: Callable[[Any], Tensor],
    example: TimeStep | Step,
    group: str = "",
    dtype: str | None = None,
) -> Source:
    tensor = get(example)
    stored_dtype = dtype or str(tensor.dtype).removeprefix("torch.")
    return Source(Field(path, dims, tuple(tensor.shape[1:]), stored_dtype, group), get)
