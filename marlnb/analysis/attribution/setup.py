"""What an attribution needs before any row is explained: the policy, the question, the feature axis, its trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.baselines import Reference, deviations
from marlnb.analysis.attribution.batch import rows_of
from marlnb.analysis.attribution.faithfulness import N_ROWS, Faithfulness, measure
from marlnb.analysis.attribution.feature_groups import Features, feature_names, group_features, matching, numbers
from marlnb.analysis.attribution.methods import MethodOptions
from marlnb.analysis.attribution.outputs import Output, find_site
from marlnb.analysis.attribution.result import SMOOTH_TOLERANCE, TOLERANCE
from marlnb.analysis.attribution.target import Question, Sources, check_order, site_sources, units_of_all
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec

STATE_ROWS = 256  # at which a state is held against the observations
SMOOTH_LAYERS = (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Softplus)
KINKED_LAYERS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.Hardtanh, nn.MaxPool2d)


@dataclass(frozen=True)
class Asked:
    """The question whose inputs are explained and, for conductance, the layer whose units are."""

    question: Question
    layer: Site | None

    @property
    def site(self) -> Site | None:
        return self.layer or self.question.site


@dataclass(frozen=True)
class FeatureAxis:
    """The last axis of an attribution.

    Attributes:
        owners: whose each feature is, for all sources; empty where it is the agent explained.
        members: the features of each group; groups: `[feature]` the number of its group; empty and None for each.
    """

    names: tuple[str, ...]
    owners: tuple[str, ...] = ()
    members: Mapping[str, tuple[str, ...]] | None = None
    groups: Tensor | None = None


def chosen_policy(policies: Mapping[str, Policy], group: str, output: Output, source: RowSource) -> Policy:
    """The group's policy, ready to be explained.

    Raises:
        AnalysisError: it has none, or no critic for a value, or one whose state is not in the recording.
    """
    if group not in policies:
        raise AnalysisError(unknown("group with a policy", group, policies))
    policy = policies[group]
    if output.to == "value" and not policy.has_critic:
        raise AnalysisError(f"the policy of {group!r} has no critic, so no value to attribute; to='action' would work")
    if output.of_critic and policy.critic_recurrent_shape is not None and not source.has_critic_state:
        raise AnalysisError(
            f"the critic of {group!r} is recurrent, and this recording does not hold its state: record it anew"
        )
    if output.to == "unit":
        site = find_site(policy.sites(), output.site)
        if not 0 <= output.unit < site.n_units:
            raise AnalysisError(f"no unit {output.unit} at {site.name!r}; it has 0 to {site.n_units - 1}")
    return policy.eval()


def members_of(spec: GroupSpec, agent: str | None, policy: Policy, output: Output, site: str | None) -> tuple[int, ...]:
    """Indices of the agents explained: the one asked for, or all that the sites involved are of."""
    members = set(range(spec.n_agents))
    for name in (site, output.site):
        if name:
            members &= set(find_site(policy.sites(), name).agents or range(spec.n_agents))
    if agent is not None:
        if agent not in spec.agents:
            raise AnalysisError(unknown(f"agent of group {spec.name!r}", agent, spec.agents))
        if spec.agents.index(agent) not in members:
            raise AnalysisError(f"{site or output.site!r} is not a site of {agent!r}")
        members = {spec.agents.index(agent)}
    return tuple(sorted(members))


def ask(
    source: RowSource,
    policy: Policy,
    output: Output,
    members: tuple[int, ...],
    sources: Sources | None,
    site: str | None,
    method: str,
) -> Asked:
    """The question, checked.

    Raises:
        AnalysisError: sources that cannot be, conductance without a site, a site that comes after the unit.
    """
    if policy.cross_agent:
        check_recorded(source, policy)
    layer = None if site is None else find_site(policy.sites(), site)
    if layer is not None:
        check_order(policy, output, layer)
    if method == "conductance":
        if layer is None:
            raise AnalysisError("method='conductance' is by a layer's units: give site=")
        by: Sources = "state" if output.of_critic and policy.values_by_state else "all"
        return Asked(Question(policy, source.env, output, members, by), layer)
    if layer is not None:
        return Asked(Question(policy, source.env, output, members, site_sources(policy, output, layer), layer), None)
    return Asked(
        Question(policy, source.env, output, members, _scope(policy, output, sources, source.env.state_shape)), None
    )


def check_recorded(source: RowSource, policy: Policy) -> None:
    """Raises AnalysisError where an agent on which the group's outputs depend was not recorded."""
    missing = [agent for agent in policy.group.agents if agent not in source.recorded_agents()]
    if missing:
        raise AnalysisError(f"outputs of {policy.group.name!r} depend on all its agents; not recorded: {missing}")


def _scope(policy: Policy, output: Output, asked: Sources | None, state_shape: tuple[int, ...] | None) -> Sources:
    """Whose observations an output is attributed to, or the environment's state."""
    if asked == "own" and output.of_critic:
        raise AnalysisError("a critic may read every agent's observation: a value is attributed to sources='all'")
    if asked == "own" and policy.cross_agent:
        raise AnalysisError(
            f"the agents of {policy.group.name!r} hear one another: each output depends on every agent's observation, "
            "and is attributed to sources='all'"
        )
    if asked == "state" and not output.of_critic:
        raise AnalysisError("an actor reads observations: the environment's state explains values and critics' units")
    if asked == "state" and state_shape is None:
        raise AnalysisError("sources='state': this environment has no state; valid: all")
    if output.of_critic and policy.values_by_state:
        return asked or "state"
    return asked or ("all" if output.of_critic or policy.cross_agent else "own")


def feature_axis(asked: Asked, features: Features, source: RowSource, recorded: Rows) -> FeatureAxis:
    """The axis of an attribution's values.

    Args:
        recorded: the recording's rows, which tell whether a state is made of the agents' observations.
    """
    question, site = asked.question, asked.site
    env, spec = question.env, question.policy.group
    if site is not None:
        units = [f"unit_{k}" for k in range(site.n_units)]
        several = question.sources == "all" if asked.layer is None else units_of_all(question.policy, site)
        if asked.layer is not None and features != "each":
            raise AnalysisError("conductance flows through each unit by itself: features='each'")
        return _axis([(agent, units) for agent in spec.agents] if several else [("", units)], features)
    if question.sources == "own":
        return _axis([("", list(feature_names(spec)))], features)
    if question.sources == "state":
        return _axis(_of_state(source, recorded), features)
    groups = [group for group in env.groups if group.name in question.groups]
    return _axis([(agent, list(feature_names(group))) for group in groups for agent in group.agents], features)


def _of_state(source: RowSource, recorded: Rows) -> list[tuple[str, list[str]]]:
    """(owner, names of its features) of the state: the agents' own, where it is their observations side by side."""
    env = source.env
    shape = env.state_shape or ()
    numbered = ["state[" + ",".join(map(str, index)) + "]" for index in np.ndindex(*shape)]
    if len(numbered) != sum(group.n_agents * group.observation.size for group in env.groups):
        return [("", numbered)]
    picked = np.unique(np.linspace(0, len(recorded) - 1, min(len(recorded), STATE_ROWS)).astype(np.int64))
    sample = Rows(recorded.index[picked], recorded.episode[picked], recorded.t[picked])
    (moments,) = source.batches(sample, len(sample), needs_state=True)
    assert moments.state is not None
    joint = torch.cat([moments.observations[name].flatten(1) for name in env.group_names], dim=-1)
    if not torch.equal(joint.float(), moments.state.flatten(1)):
        return [("", numbered)]
    return [(agent, list(feature_names(group))) for group in env.groups for agent in group.agents]


def _axis(parts: Sequence[tuple[str, list[str]]], features: Features) -> FeatureAxis:
    """From (owner, names of its features), one after the other."""
    if features == "each":
        names = tuple(name for _, part in parts for name in part)
        return FeatureAxis(names, tuple(owner for owner, part in parts for _ in part) if parts[0][0] else ())
    if isinstance(features, Mapping):
        every = [name for _, part in parts for name in part]
        for group, patterns in features.items():
            if not matching(every, patterns):
                raise AnalysisError(f"group {group!r}: {unknown('feature', str(patterns), every)}")
    names_, owners, members, found, first = [], [], {}, [], 0
    for owner, part in parts:
        groups = group_features(part, features, strict=False)
        found.append(numbers(groups, len(part)) + first)
        first += len(groups)
        for name, places in groups.items():
            names_.append(name)
            owners.append(owner)
            members[f"{owner}: {name}" if owner else name] = tuple(part[k] for k in places)
    whole = torch.from_numpy(np.concatenate(found))
    return FeatureAxis(tuple(names_), tuple(owners) if parts[0][0] else (), members, whole)


def tolerance(policy: Policy, output: Output) -> float:
    """Share of an explanation that may be missing: a quadrature converges slowly on a network with kinks.

    A network whose nonlinearities are no modules, and a value, which may be a maximum, count as having some.
    """
    layers = [module for module in policy.modules() if isinstance(module, SMOOTH_LAYERS + KINKED_LAYERS)]
    smooth = bool(layers) and not any(isinstance(layer, KINKED_LAYERS) for layer in layers)
    return SMOOTH_TOLERANCE if smooth and output.to != "value" else TOLERANCE


def n_samples_of(method: str, asked: int | None, n_features: int) -> int:
    """Permutations or coalitions."""
    if asked is not None:
        if asked < 1:
            raise AnalysisError(f"n_samples must be at least 1; got {asked}")
        return asked
    if method == "kernel_shap":
        return min(2 ** min(n_features, 12) - 2, 256 + 2 * n_features) if n_features > 1 else 1
    return 25 if method == "shapley_value_sampling" else 0


def faithfulness_of(
    source: RowSource,
    question: Question,
    rows: Rows,
    recorded: Rows,
    reference: Reference,
    options: MethodOptions,
    axis: FeatureAxis,
) -> Faithfulness | None:
    """Measured over a seeded sample of the rows; None where no agent acts at any of them.

    Args:
        recorded: all of the recording's, of which features' deviations are taken.
    """
    drawn = np.random.default_rng(options.seed).choice(len(rows), min(N_ROWS, len(rows)), replace=False)
    places = np.sort(drawn)
    sample = Rows(rows.index[places], rows.episode[places], rows.t[places])
    (moments,) = source.batches(sample, len(sample), needs_state=question.output.of_critic)
    if options.method == "gradient_shap":  # each of its draws is one more pass
        moments = rows_of(moments, slice(0, N_ROWS // 2))
    inputs = question.inputs(moments)
    examples = question.examples(moments, inputs)
    acting = moments.acting[:, list(question.members)]
    counted = torch.zeros(len(inputs), examples.agents, dtype=torch.bool)
    counted[:, examples.chosen] = acting
    if not acting.any():
        return None
    spread = question.reference(deviations(question, source, recorded), len(inputs))
    baselines = [question.reference(one, len(inputs)) for one in reference.values]
    return measure(examples, baselines, options, acting=counted.reshape(-1), groups=axis.groups, deviations=spread)
