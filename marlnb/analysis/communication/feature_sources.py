"""Which features of an agent's observation carry information about which other agent: by name, or as the user says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marlnb.analysis.attribution.feature_groups import feature_names, matching
from marlnb.errors import AnalysisError, unknown
from marlnb.specs import EnvSpec, GroupSpec

FeatureSources = Mapping[str, Mapping[str, str | Sequence[str]]]
"""By observer and observed agent, globs over names of the observer's features."""


def features_about(env: EnvSpec, observer: str, feature_sources: FeatureSources | None = None) -> dict[str, list[int]]:
    """By other agent, the indices of the observer's features that carry information about it.

    By default from names such as MPE's: `other_<group>_<k>_...` is the k-th other agent of the observer's group,
    `<agent>_...` the agent of that name, and `message_...` the only other agent that can speak.

    Args:
        feature_sources: replaces the names' meaning for the observers in it.
    Raises:
        AnalysisError: a glob that matches nothing, or messages whose speaker is ambiguous.
    """
    group = env.group_of(observer)
    names = feature_names(group)
    if feature_sources is not None and observer in feature_sources:
        return {agent: _matching(env, observer, agent, globs) for agent, globs in feature_sources[observer].items()}
    others = [agent for agent in group.agents if agent != observer]
    by_number = {agent: f"other_{group.name}_{k}_" for k, agent in enumerate(others)}
    indices: dict[str, list[int]] = {}
    for agent in env.agents:
        prefixes = (f"{agent}_", by_number.get(agent, f"{agent}_"))
        about = [k for k, name in enumerate(names) if name.startswith(prefixes)]
        if about and agent != observer:
            indices[agent] = about
    messages = [k for k, name in enumerate(names) if name.startswith("message_")]
    if messages:
        indices.setdefault(_only_speaker(env, observer), []).extend(messages)
    return indices


def messages_of(env: EnvSpec, observer: str, feature_sources: FeatureSources | None = None) -> dict[str, list[int]]:
    """As `features_about`, only those that carry messages; all of an observer's `feature_sources`."""
    indices = features_about(env, observer, feature_sources)
    if feature_sources is not None and observer in feature_sources:
        return indices
    names = feature_names(env.group_of(observer))
    messages = {agent: [k for k in about if "message_" in names[k]] for agent, about in indices.items()}
    return {agent: about for agent, about in messages.items() if about}


def _only_speaker(env: EnvSpec, observer: str) -> str:
    speakers = [agent for group in env.groups if speaks(group) for agent in group.agents if agent != observer]
    if len(speakers) != 1:
        raise AnalysisError(
            f"the speaker of the messages that {observer!r} observes is ambiguous; candidates: {speakers or 'none'}. "
            f"Pass feature_sources={{{observer!r}: {{'<agent>': ['message_*']}}}}"
        )
    return speakers[0]


def speaks(group: GroupSpec) -> bool:
    """Whether an action of the group says a word."""
    return any("say_" in name for name in group.action.names)


def _matching(env: EnvSpec, observer: str, agent: str, globs: str | Sequence[str]) -> list[int]:
    """Indices of the observer's features that match any of the globs, which carry information about the agent."""
    if agent not in env.agents:
        raise AnalysisError(unknown("agent in feature_sources", agent, env.agents))
    names = feature_names(env.group_of(observer))
    indices = matching(names, globs)
    if not indices:
        raise AnalysisError(f"feature_sources of {observer!r} for {agent!r}: {unknown('feature', str(globs), names)}")
    return indices
