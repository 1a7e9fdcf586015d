"""Which agent influences which: through observations, through messages, or through what critics read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.baselines import Baseline
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.feature_groups import feature_names
from marlnb.analysis.attribution.outputs import Target, To, resolve_output
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.task import policy_of
from marlnb.analysis.communication.divergence import Divergence, check_measure
from marlnb.analysis.communication.feature_sources import FeatureSources, features_about, messages_of
from marlnb.analysis.communication.influence_result import Influence, over_episodes
from marlnb.analysis.communication.message_effects import message_effects
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.progress import AnalysisProgress
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Through = Literal["observation", "communication", "critic"]


def influence(
    recording: RecordingLike,
    through: Through = "observation",
    *,
    group: str | None = None,
    to: To = "action",
    target: Target = None,
    method: str = AttributionConfig.method,
    baseline: Baseline | None = None,
    feature_sources: FeatureSources | None = None,
    measure: Divergence = "kl",
    n_counterfactuals: int = 32,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
    n_steps: int = AttributionConfig.n_steps,
    batch_size: int = AttributionConfig.batch_size,
    seed: int = 0,
    progress: bool = True,
) -> Influence:
    """How much of each agent's output comes from each other agent, with intervals over episodes.

    Args:
        through: observation: mean absolute attribution to the features that carry information about the other agent,
            or for networks that read several agents' observations, to the other's whole observation. communication:
            divergence of the agent's actions from their mean under counterfactual messages (Jaques et al. 2019,
            equation 2), those of the same step of other episodes; for networks that read several agents' observations
            the other's observation is exchanged. critic: mean absolute attribution of the value to the other's
            observation.
        group: the influenced agents; None: all recorded groups with a policy.
        to: output that is explained, as in `attribute`; only for observation, and not value.
        target: as in `attribute`; only for observation.
        method: as in `attribute`.
        baseline: as in `attribute`.
        feature_sources: features that carry information about other agents, by observer and other agent, for example
            `{"listener_0": {"speaker_0": ["message_*"]}}`; None: read from names such as MPE's.
        measure: of communication: kl in nats, or total_variation from 0 to 1 (the only one for Q policies). The kl of
            continuous actions is the mean of those from each message, which is larger than that from their mixture.
        n_counterfactuals: of communication: up to this many different messages are enumerated, weighted by the number
            of other episodes that have them. Of more, and of whole observations, so many are drawn. A few draws have a
            bias, as few episodes have: on a listener of three words, with 8 draws the kl was 4% and the total variation
            3% too high, with 32 about 1%.
        policies: by group; None: those of the run.
        episodes: numbers of the episodes to use, or a mask of all episodes; None for all.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        n_steps: as in `attribute`.
        batch_size: rows at once.
        progress: show how many rows of agents are explained, if it takes more than two seconds.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: an unknown `through`, measure or group; features whose source is ambiguous; no agent that
            receives messages; a group without a critic.
    """
    recording = opened_recording(recording)
    _check_question(recording, through, group, to, target, measure)
    n_counterfactuals = checked_number(n_counterfactuals, int, "n_counterfactuals", ge=1)
    batch_size, seed = checked_number(batch_size, int, "batch_size", ge=1), checked_number(seed, int, "seed", ge=0)
    groups = list(recording.groups) if group is None else [group]
    source = RowSource(recording, groups[0])
    policies = policies if policies is not None else source.policies(checkpoint)
    env = source.env
    if through == "communication":
        _check_messages(env, groups, policies, feature_sources)
    policy_of_group = {name: policy_of(RowSource(recording, name), policies, checkpoint) for name in groups}
    explain = partial(
        attribute,
        recording,
        method=method,
        baseline=baseline,
        n_steps=n_steps,
        batch_size=batch_size,
        seed=seed,
        policies=policies,
        episodes=episodes,
        checkpoint=checkpoint,
    )
    rows = source.rows(episodes, checkpoint)
    by_row, changes_by_row, messages = [], [], []
    with AnalysisProgress(f"influence through {through}", "rows", shown=progress) as shown:
        for policy in policy_of_group.values():
            agent_by_agent = through == "observation" and not policy.cross_agent
            shown.expect(len(rows) * (policy.group.n_agents if agent_by_agent else 1))
        for name, policy in policy_of_group.items():
            if through == "communication":
                check_measure(policy, measure)
                group_source = RowSource(recording, name)
                sizes, changes = message_effects(
                    group_source, policy, rows, feature_sources, measure, n_counterfactuals, batch_size, seed, shown
                )
                changes_by_row.append(changes)
                new_messages = _not_finite(sizes, group_source.acting(rows), policy.group, env)
            elif through == "critic":
                attribution = explain(group=name, to="value", progress=shown)
                sizes, new_messages = _by_source(attribution, env), list(attribution.warnings)
            else:
                explain_output = partial(explain, to=to, target=target, progress=shown)
                sizes, new_messages = _observation_effects(policy, env, feature_sources, explain_output)
            by_row.append(sizes)
            messages += [f"{name}: {text}" for text in new_messages]
    changes_of_others = np.concatenate(changes_by_row, axis=1) if changes_by_row else None
    values, low, high, n_episodes = over_episodes(np.concatenate(by_row, axis=1), rows.episode, seed, changes_of_others)
    description, units = _describe(through, to, target, measure, env, groups)
    return Influence(
        values=values,
        low=np.maximum(low, 0),  # sizes are never negative
        high=high,
        agents=tuple(agent for name in groups for agent in env.group(name).agents),
        sources=env.agents,
        through=through,
        measure=description,
        units=units,
        n_episodes=n_episodes,
        messages=tuple(messages),
        origin=source.origin(checkpoint),
    )


def _check_question(
    recording: Recording, through: Through, group: str | None, to: To, target: Target, measure: Divergence
) -> None:
    if through not in get_args(Through):
        raise AnalysisError(unknown("way of influence", through, get_args(Through)))
    if measure not in get_args(Divergence):
        raise AnalysisError(unknown("measure", measure, get_args(Divergence)))
    if through != "observation" and (to != "action" or target is not None):
        raise AnalysisError(f"to and target need through='observation'; got to={to!r}, target={target!r}")
    if to == "value":
        raise AnalysisError("use through='critic' for attributions of the value to observations")
    if group is not None and group not in recording.groups:
        raise AnalysisError(unknown("recorded group", group, recording.groups))


def _check_messages(
    env: EnvSpec, groups: list[str], policies: Mapping[str, Policy], feature_sources: FeatureSources | None
) -> None:
    """Raises AnalysisError if no agent receives messages."""
    if not any(
        messages_of(env, agent, feature_sources) or policies[name].cross_agent
        for name in groups
        for agent in env.group(name).agents
    ):
        raise AnalysisError(f"no agent of {groups} observes a feature named as a message: use feature_sources=")


def _describe(
    through: Through, to: To, target: Target, measure: Divergence, env: EnvSpec, groups: list[str]
) -> tuple[str, str]:
    """What is measured in words, and its units."""
    if through == "communication":
        return "divergence of actions under other messages", "nats" if measure == "kl" else "total variation"
    if through == "critic":
        return "mean |contribution| to the value", "reward"
    specs = [env.group(name).action for name in groups]
    outputs = [resolve_output(spec, to, target) for spec in specs]
    units = " or ".join(dict.fromkeys(output.units for output in outputs))
    names = dict.fromkeys(output.describe(spec) for output, spec in zip(outputs, specs))
    return f"mean |contribution| to the {to if target is None else ' or '.join(names)}", units


def _observation_effects(
    policy: Policy, env: EnvSpec, feature_sources: FeatureSources | None, explain: Callable[..., Attribution]
) -> tuple[np.ndarray, list[str]]:
    """Absolute attribution `[row, agent, source]` of each agent's output to its features about each other agent."""
    spec = policy.group
    if policy.cross_agent:
        attribution = explain(group=spec.name, sources="all")
        return _by_source(attribution, env), list(attribution.warnings)
    names, sizes_of_agents, messages = feature_names(spec), [], dict[str, None]()
    for agent in spec.agents:
        about = features_about(env, agent, feature_sources)
        features = {other: [names[k] for k in indices] for other, indices in about.items()}
        about_no_one = sorted(set(range(len(names))) - {k for indices in about.values() for k in indices})
        if about_no_one:
            features[agent] = [names[k] for k in about_no_one]
        attribution = explain(group=spec.name, agent=agent, features=features)
        sizes = np.zeros((len(attribution.values), len(env.agents)))
        for k, other in enumerate(attribution.feature_names):
            sizes[:, env.agents.index(other)] = np.abs(attribution.values[:, 0, k])
        sizes[~np.isfinite(attribution.score[:, 0])] = np.nan
        sizes_of_agents.append(sizes)
        messages.update(dict.fromkeys(attribution.warnings))
    return np.stack(sizes_of_agents, axis=1), list(messages)


def _by_source(attribution: Attribution, env: EnvSpec) -> np.ndarray:
    """Absolute attribution `[row, agent, source]` to each agent's whole observation."""
    sizes = np.zeros((*attribution.score.shape, len(env.agents)))
    for agent, values in attribution.by_source().items():
        sizes[..., env.agents.index(agent)] = np.abs(values.sum(-1))
    sizes[~np.isfinite(attribution.score)] = np.nan
    return sizes


def _not_finite(sizes: np.ndarray, acting: np.ndarray, spec: GroupSpec, env: EnvSpec) -> list[str]:
    """A message if sizes `[row, agent, source]` are not finite where the agent acted `[row, agent]`."""
    diagonal = np.array([[agent == source for source in env.agents] for agent in spec.agents])
    bad = (~np.isfinite(sizes) & ~diagonal).any(-1) & acting
    if not bad.any():
        return []
    return [f"not finite at {int(bad.sum())} of {int(acting.sum())} rows of acting agents; left out"]
