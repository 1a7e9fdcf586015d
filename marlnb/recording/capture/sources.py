"""Sources: what is recorded at each step, where it goes in the file and how it is read from a moment or a step.

One list per recording says it all: the file's layout, the plan's sizes and the recorder's copying are made from it.
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
from marlnb.models.policies.policy import ActorOutput, Policy
from marlnb.recording.file.layout import Field
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.collect.episodes import TimeStep

LabelFn = Callable[[TimeStep], Tensor]
Pick = slice | torch.Tensor | None
AXES = {"action": "component", "logits": "parameter", "action_mask": "choice"}


@dataclass(frozen=True)
class Source:
    """One field and how to get its tensor `[env, ...]` from a moment (or from the step after it).

    Attributes:
        lasts: nobody writes to the tensor again, so that it may be read and copied later.
        of_output: the same from the policies' outputs by group, where it is one of these.
    """

    field: Field
    get: Callable[[Any], Tensor]
    lasts: bool = False
    of_output: Callable[[Mapping[str, ActorOutput]], Tensor] | None = None

    def of_agents(self, agents: tuple[str, ...]) -> Source:
        """The same, saying whose it is."""
        return replace(self, field=replace(self.field, agents=agents))


@dataclass(frozen=True)
class Selection:
    """The recorded agents of one group: indices along its agent axis, in the group's order."""

    group: GroupSpec
    indices: tuple[int, ...]

    @property
    def pick(self) -> Pick:
        """What selects them: None for all, a slice where they lie side by side."""
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
        """The recorded agents whose activations a site holds, as indices along its agent axis; None: there are none."""
        if site.agents is None:
            return self
        places = tuple(place for place, agent in enumerate(site.agents) if agent in self.indices)
        names = tuple(self.group.agents[agent] for agent in site.agents)
        return Selection(replace(self.group, agents=names), places) if places else None

    def field_of(self, site: Site, dtype: str) -> Field:
        """Where a site's activations go; this is what `of_site` gave for it."""
        own = () if site.agents is None else self.agents
        shape = (len(self.indices), site.n_units)
        return Field(f"activations/{site.name}", ("agent", "unit"), shape, dtype, self.group.name, own)


def capture_if_any(
    policies: Policy | Mapping[str, Policy], names: Sequence[str]
) -> AbstractContextManager[dict[str, Tensor]]:
    """`capture`, or an empty dict where there is nothing to capture."""
    return capture(policies, names) if names else nullcontext({})


T = Source(Field("steps/t", (), (), "int64"), lambda time_step: time_step.t, lasts=True)


def picked(get: Callable[[Any], Tensor], pick: Pick) -> Callable[[Any], Tensor]:
    """`get`, then the recorded agents."""
    return get if pick is None else lambda time_step: get(time_step)[:, pick]


def moment_sources(
    time_step: TimeStep,
    selections: Sequence[Selection],
    policies: Mapping[str, Policy],
    sites: Sequence[Site],
    activations: Mapping[str, Tensor],
    labels: Mapping[str, LabelFn],
    dtype: str,
) -> list[Source]:
    """What is read before the environment steps, but for the step's number; shapes and types are those of `moment`.

    Raises:
        SiteError: a site did not fire when the policies acted.
        RecordingError: a label that cannot be recorded.
    """
    silent = sorted(site.name for site in sites if site.name not in activations)
    if silent:
        raise SiteError(f"these sites never fired while the policies acted: {', '.join(silent)}")
    found: list[Source] = []
    for selection in selections:
        found += _group_sources(time_step, selection, policies[selection.group.name], dtype)
    by_group = {selection.group.name: selection for selection in selections}
    for site in sites:
        chosen = by_group[site.name.split("/")[0]].of_site(site)
        assert chosen is not None  # `select_sites` leaves out those of other agents
        get = picked(_activation(activations, site.name), chosen.pick)
        source = _source(
            f"activations/{site.name}", ("agent", "unit"), get, time_step, chosen.group.name, dtype, lasts=True
        )
        found.append(source if site.agents is None else source.of_agents(chosen.agents))
    if time_step.state is not None:
        dims = _axes(time_step.state.shape[1:], "feature")
        found.append(_source("steps/state", dims, lambda time_step: time_step.state, time_step))
    found += _label_sources(time_step, selections, labels)
    return found


def step_sources(step: Step, selections: Sequence[Selection]) -> list[Source]:
    """What is read after the environment stepped."""
    found = []
    for selection in selections:
        name = selection.group.name
        for field in ("reward", "terminated", "truncated"):
            get = picked(_of_step(name, field), selection.pick)
            found.append(_source(f"steps/{name}/{field}", ("agent",), get, step, name))
    return found


def _group_sources(time_step: TimeStep, selection: Selection, policy: Policy, dtype: str) -> Iterator[Source]:
    name, pick = selection.group.name, selection.pick
    put_out: dict[str, Callable[[Mapping[str, ActorOutput]], Tensor]] = {
        "action": lambda output: output[name].action,
        "logits": lambda output: output[name].logits,
        "log_prob": lambda output: output[name].log_prob,
    }
    getters: dict[str, Callable[[TimeStep], Any]] = {
        "observation": lambda time_step: time_step.observation[name],
        **{field: _of_moment(of_output) for field, of_output in put_out.items()},
        "alive": lambda time_step: time_step.alive[name],
        "acting": lambda time_step: time_step.acting[name],
    }
    if time_step.action_mask[name] is not None:
        getters["action_mask"] = lambda time_step: time_step.action_mask[name]
    for field, get in getters.items():
        inner = get(time_step).shape[2:]
        if 0 in inner:  # as the parameters of a policy that has none
            continue
        dims = ("agent", *_axes(inner, AXES.get(field, "feature")))
        lasts = field in put_out  # the rest are the environment's own buffers
        source = _source(f"steps/{name}/{field}", dims, picked(get, pick), time_step, name, lasts=lasts)
        yield replace(source, of_output=picked(put_out[field], pick)) if lasts else source
    if time_step.recurrent[name] is not None:
        path = f"recurrent/{name}/{recurrent_site(policy, 'actor')}"
        get_state = picked(lambda time_step: time_step.recurrent[name], pick)
        yield _source(path, ("agent", "layer", "unit"), get_state, time_step, name, dtype, lasts=True)


def recurrent_site(policy: Policy, part: str) -> str:
    """`<part>/<layer>` of the site whose state it is; `<part>/state` where there is none or more than one."""
    kinds = [site.name for site in policy.sites() if site.kind == "recurrent" and f"/{part}/" in site.name]
    return kinds[0].split("/", 1)[1] if len(kinds) == 1 else f"{part}/state"


def _label_sources(
    time_step: TimeStep, selections: Sequence[Selection], labels: Mapping[str, LabelFn]
) -> Iterator[Source]:
    """The user's labels, and the environment's own where it cannot tell them later."""
    spec = time_step.env.spec
    groups = {label.name: label.group for label in spec.labels}
    twice = sorted(set(labels) & set(groups))
    if twice:
        raise RecordingError(f"{spec.name} has labels of these names already: {twice}; choose others")
    built_in = {} if tells_later(time_step.env) else {name: _built_in_label(name) for name in time_step.labels}
    recorded = {selection.group.name: selection for selection in selections}
    for name, function in {**built_in, **labels}.items():
        value = _checked_label(name, function(time_step), time_step.env.n_envs)
        if value.ndim == 1:
            yield _source(f"labels/{name}", (), function, time_step)
            continue
        group = groups.get(name) or _group_of_label(name, value, spec)
        if group in recorded:
            get = picked(function, recorded[group].pick)
            yield _source(f"labels/{name}", ("agent",), get, time_step, group)


def tells_later(env: VectorEnv) -> bool:
    """Whether the environment's own labels can be told for many moments at once."""
    return bool(env.spec.labels) and env.label_moment() is not None


def _activation(activations: Mapping[str, Tensor], name: str) -> Callable[[TimeStep], Tensor]:
    return lambda time_step: activations[name]


def _of_moment(of_output: Callable[[Mapping[str, ActorOutput]], Tensor]) -> Callable[[TimeStep], Tensor]:
    return lambda time_step: of_output(time_step.output)


def _of_step(group: str, field: str) -> Callable[[Step], Tensor]:
    return lambda step: getattr(step.groups[group], field)


def _built_in_label(name: str) -> LabelFn:
    return lambda time_step: time_step.labels[name]


def _checked_label(name: str, value: object, n_envs: int) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim not in (1, 2) or len(value) != n_envs:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise RecordingError(f"label {name!r} must be a tensor [env] or [env, agent] with {n_envs} copies; got {found}")
    return value


def _group_of_label(name: str, value: Tensor, spec: EnvSpec) -> str:
    named = name.split("/")[0]
    fitting = [group.name for group in spec.groups if group.n_agents == value.shape[1]]
    if named in fitting:
        return named
    if len(fitting) != 1:
        sizes = {group.name: group.n_agents for group in spec.groups}
        raise RecordingError(
            f"label {name!r} has {value.shape[1]} agents, the groups have {sizes}; "
            f"call it '<group>/{name}' to say whose it is"
        )
    return fitting[0]


def observation_dims(shape: Sequence[int]) -> tuple[str, ...]:
    """The axes of observations after `row`."""
    return ("agent", *_axes(shape, "feature"))


def _axes(shape: Sequence[int], single: str) -> tuple[str, ...]:
    return (single,) if len(shape) == 1 else tuple(f"{single}_{axis}" for axis in range(len(shape)))


def _source(
    path: str,
    dims: tuple[str, ...],
    get: Callable[[Any], Tensor],
    example: TimeStep | Step,
    group: str = "",
    dtype: str | None = None,
    *,
    lasts: bool = False,
) -> Source:
    tensor = get(example)
    kind = dtype or str(tensor.dtype).removeprefix("torch.")
    return Source(Field(path, dims, tuple(tensor.shape[1:]), kind, group), get, lasts)
