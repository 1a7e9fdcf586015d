"""Which features of an agent's observation tell of which other agent, by their names or as the user says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marlnb.analysis.attribution.feature_groups import feature_names, matching
from marlnb.errors import AnalysisError, unknown
from marlnb.specs import EnvSpec, GroupSpec

Told = Mapping[str, Mapping[str, str | Sequence[str]]]


def features_about(env: EnvSpec, observer: str, told: Told | None = None) -> dict[str, list[int]]:
    """Other agent -> places of the features that tell of it, among those that an agent observes.

    By names as MPE's: `other_<group>_<k>_...` is the k-th other agent of one's own group, `<agent>_...` the agent of
    that name, and `message_...` the only other agent that can speak.

    Args:
        told: by observer and by the agent told of, globs over feature names; in the place of what names tell.
    Raises:
        AnalysisError: a glob that matches nothing, or messages of whom cannot be known.
    """
    group = next(found for found in env.groups if observer in found.agents)
    names = feature_names(group)
    if told is not None and observer in told:
        return {agent: _matched(env, observer, names, agent, globs) for agent, globs in told[observer].items()}
    same = [agent for agent in group.agents if agent != observer]
    starts = {agent: f"other_{group.name}_{k}_" for k, agent in enumerate(same)}
    found: dict[str, list[int]] = {}
    for agent in env.agents:
        if agent == observer:
            continue
        ways = (f"{agent}_", starts.get(agent, f"{agent}_"))
        places = [k for k, name in enumerate(names) if name.startswith(ways)]
        if places:
            found[agent] = places
    said = [k for k, name in enumerate(names) if name.startswith("message_")]
    if said:
        found.setdefault(_speaker(env, observer), []).extend(said)
    return found


def messages_of(env: EnvSpec, observer: str, told: Told | None = None) -> dict[str, list[int]]:
    """As `features_about`, only those that carry messages; all of them where the user says which."""
    group = next(found for found in env.groups if observer in found.agents)
    names, found = feature_names(group), features_about(env, observer, told)
    if told is not None and observer in told:
        return found
    said = {agent: [k for k in places if "message_" in names[k]] for agent, places in found.items()}
    return {agent: places for agent, places in said.items() if places}


def _speaker(env: EnvSpec, observer: str) -> str:
    speakers = [agent for group in env.groups if speaks(group) for agent in group.agents if agent != observer]
    if len(speakers) != 1:
        raise AnalysisError(
            f"whose messages does {observer!r} hear? It could be {speakers or 'nobody'}: say it, as "
            f"told={{{observer!r}: {{'<agent>': ['message_*']}}}}"
        )
    return speakers[0]


def speaks(group: GroupSpec) -> bool:
    """Whether an action of the group's has a word in it."""
    return any("say_" in name for name in group.action.names)


def _matched(env: EnvSpec, observer: str, names: Sequence[str], agent: str, globs: str | Sequence[str]) -> list[int]:
    if agent not in env.agents:
        raise AnalysisError(unknown("agent that is told of", agent, env.agents))
    places = matching(names, globs)
    if not places:
        raise AnalysisError(f"{observer!r} of {agent!r}: {unknown('feature', str(globs), names)}")
    return places
