"""What an attribution needs before any row is explained: the policy, the target, the feature axis and its tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.config import AttributionConfig, Features
from marlnb.analysis.attribution.convergence import SMOOTH_TOLERANCE, TOLERANCE
from marlnb.analysis.attribution.feature_groups import feature_names, group_features, group_numbers, matching
from marlnb.analysis.attribution.outputs import Output, find_site
from marlnb.analysis.attribution.target import (
    AttributionTarget,
    check_order,
    explained_by_all_units,
    observation_sources,
    site_sources,
)
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec

N_COMPARED_STATES = 256  # rows at which the state is compared with the observations
SMOOTH_LAYERS = (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Softplus)
KINKED_LAYERS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.Hardtanh, nn.MaxPool2d)


@dataclass(frozen=True)
class AttributionTask:
    """The target whose inputs are explained.

    Attributes:
        target: output, agents and explaining inputs.
        layer: of conductance, whose units are explained; None otherwise.
    """

    target: AttributionTarget
    layer: Site | None

    @property
    def site(self) -> Site | None:
        """The site whose units are the features; None: features are observed."""
        return self.layer or self.target.site


@dataclass(frozen=True)
class FeatureAxis:
    """The last axis of an attribution's values.

    Attributes:
        names: of the features or groups.
        owners: for all sources, the agent that each feature belongs to; empty where it is the explained agent.
        members: by group, the names of its features; None for single features.
        groups: `[feature]`, the number of each feature's group; None for single features.
    """

    names: tuple[str, ...]
    owners: tuple[str, ...] = ()
    members: Mapping[str, tuple[str, ...]] | None = None
    groups: Tensor | None = None


def policy_of(source: RowSource, policies: Mapping[str, Policy] | None, checkpoint: int | None) -> Policy:
    """The group's policy among those given, or among those of the checkpoint that made the recording.

    Raises:
        AnalysisError: there is none.
    """
    by_group = policies if policies is not None else source.policies(checkpoint)
    if source.group not in by_group:
        raise AnalysisError(unknown("group with a policy", source.group, by_group))
    return by_group[source.group]


def choose_policy(
    source: RowSource, policies: Mapping[str, Policy] | None, checkpoint: int | None, output: Output
) -> Policy:
    """The group's policy in eval mode.

    Raises:
        AnalysisError: there is none, or no critic for a value, or a critic whose state was not recorded.
    """
    policy, group = policy_of(source, policies, checkpoint), source.group
    if output.to == "value" and not policy.has_critic:
        raise AnalysisError(f"the policy of {group!r} has no critic, so no value to attribute; use to='action'")
    if output.of_critic and policy.critic_recurrent_shape is not None and not source.has_critic_state:
        raise AnalysisError(
            f"the recurrent critic of {group!r} needs its recorded state, which is missing: record again"
        )
    if output.to == "unit":
        site = find_site(policy.sites(), output.site)
        if not 0 <= output.unit < site.n_units:
            raise AnalysisError(f"no unit {output.unit} at {site.name!r}; valid: 0 to {site.n_units - 1}")
    return policy.eval()


def explained_agents(
    spec: GroupSpec, agent: str | None, policy: Policy, output: Output, site: str | None
) -> tuple[int, ...]:
    """Indices of the explained agents: the requested one, or all that the sites involved belong to."""
    members = set(range(spec.n_agents))
    for name in (site, output.site):
        if name:
            members &= set(find_site(policy.sites(), name).agents or members)
    if agent is None:
        return tuple(sorted(members))
    if agent not in spec.agents:
        raise AnalysisError(unknown(f"agent of group {spec.name!r}", agent, spec.agents))
    if spec.agents.index(agent) not in members:
        raise AnalysisError(f"{site or output.site!r} is not a site of {agent!r}")
    return (spec.agents.index(agent),)


def build_task(
    source: RowSource, policy: Policy, output: Output, members: tuple[int, ...], config: AttributionConfig
) -> AttributionTask:
    """The task that a config describes, checked.

    Raises:
        AnalysisError: sources that do not apply, conductance without a site, a site computed after the explained unit.
    """
    source.check_recorded(policy.reads(critic=output.of_critic))
    explained_by = partial(AttributionTarget, policy, source.env, output, members)
    if config.site is None:
        if config.settings.by_layer:
            raise AnalysisError(f"method={config.method!r} explains by a layer's units; choose it with site=")
        sources = observation_sources(policy, output, config.sources, source.env.state_shape)
        return AttributionTask(explained_by(sources), None)
    site = find_site(policy.sites(), config.site)
    check_order(policy, output, site)
    if config.settings.by_layer:
        return AttributionTask(explained_by("state" if output.of_critic and policy.values_by_state else "all"), site)
    return AttributionTask(explained_by(site_sources(policy, output, site), site), None)


def feature_axis(task: AttributionTask, features: Features, source: RowSource, recorded: Rows) -> FeatureAxis:
    """The feature axis of a task's values.

    Args:
        recorded: the recording's rows, which show whether the state consists of the agents' observations.
    """
    target, site = task.target, task.site
    env, spec = target.env, target.policy.group
    if site is not None:
        units = [f"unit_{k}" for k in range(site.n_units)]
        if task.layer is not None and features != "each":
            raise AnalysisError("conductance explains by single units; use features='each'")
        all_units = target.sources == "all" if task.layer is None else explained_by_all_units(target.policy, site)
        return build_axis([(agent, units) for agent in spec.agents] if all_units else [("", units)], features)
    if target.sources == "own":
        return build_axis([("", list(feature_names(spec)))], features)
    if target.sources == "state":
        return build_axis(_state_features(source, recorded), features)
    groups = [group for group in env.groups if group.name in target.groups]
    return build_axis([(agent, list(feature_names(group))) for group in groups for agent in group.agents], features)


def _state_features(source: RowSource, recorded: Rows) -> list[tuple[str, list[str]]]:
    """(agent, names of its features) where the state consists of the agents' observations; else one part."""
    env = source.env
    state_names = ["state[" + ",".join(map(str, index)) + "]" for index in np.ndindex(*(env.state_shape or ()))]
    if len(state_names) != sum(group.n_agents * group.observation.size for group in env.groups):
        return [("", state_names)]
    n_compared = min(len(recorded), N_COMPARED_STATES)
    sample = recorded.at(np.unique(np.linspace(0, len(recorded) - 1, n_compared).astype(np.int64)))
    (batch,) = source.batches(sample, len(sample), needs_state=True)
    assert batch.state is not None
    joint = torch.cat([batch.observations[name].flatten(1) for name in env.group_names], dim=-1)
    if not torch.equal(joint.float(), batch.state.flatten(1)):
        return [("", state_names)]
    return [(agent, list(feature_names(group))) for group in env.groups for agent in group.agents]


def build_axis(parts: Sequence[tuple[str, list[str]]], features: Features) -> FeatureAxis:
    """The axis of (owner, names of its features), one part after another."""
    has_owners = bool(parts[0][0])
    if features == "each":
        names = tuple(name for _, part in parts for name in part)
        return FeatureAxis(names, tuple(owner for owner, part in parts for _ in part) if has_owners else ())
    if isinstance(features, Mapping):
        all_names = [name for _, part in parts for name in part]
        for group, globs in features.items():
            if not matching(all_names, globs):
                raise AnalysisError(f"group {group!r}: {unknown('feature', str(globs), all_names)}")
    group_names, owners, members, group_of, n_groups = [], [], {}, [], 0
    for owner, part in parts:
        groups = group_features(part, features)
        group_of.append(group_numbers(groups, len(part)) + n_groups)
        n_groups += len(groups)
        for name, indices in groups.items():
            group_names.append(name)
            owners.append(owner)
            members[f"{owner}: {name}" if owner else name] = tuple(part[k] for k in indices)
    numbers = torch.from_numpy(np.concatenate(group_of))
    return FeatureAxis(tuple(group_names), tuple(owners) if has_owners else (), members, numbers)


def convergence_tolerance(policy: Policy, output: Output) -> float:
    """Share of an output that may be unexplained: a quadrature converges slowly on a network with kinks.

    A network whose nonlinearities are not modules, and a value, which may be a maximum, count as kinked.
    """
    layers = [module for module in policy.modules() if isinstance(module, SMOOTH_LAYERS + KINKED_LAYERS)]
    smooth = bool(layers) and not any(isinstance(layer, KINKED_LAYERS) for layer in layers)
    return SMOOTH_TOLERANCE if smooth and output.to != "value" else TOLERANCE
