"""Agents with spaces of their own, put together as groups whose members share theirs."""

from __future__ import annotations

from collections.abc import Mapping

from marlnb.errors import ConfigError, EnvBuildError
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec, group_agents


def group_specs(
    name: str,
    observations: Mapping[str, ObservationSpec],
    actions: Mapping[str, ActionSpec],
    groups: Mapping[str, tuple[str, ...]],
    masked: frozenset[str] = frozenset(),
) -> tuple[GroupSpec, ...]:
    """Groups as the user says, or by `<group>_<index>`.

    Args:
        name: the environment's, for messages.
        observations, actions: by agent, in the environment's order.
        masked: agents that have an action mask.
    Raises:
        EnvBuildError: groups that do not name each agent once, or put agents with different spaces together.
    """
    try:
        grouped = group_agents(tuple(observations), groups)
    except ConfigError as error:
        raise EnvBuildError(f"{name}: {error}") from error
    found = []
    for group, members in grouped.items():
        first = members[0]
        spaces = {agent: (observations[agent], actions[agent], agent in masked) for agent in members}
        other = next((agent for agent in members if spaces[agent] != spaces[first]), None)
        if other is not None:
            raise EnvBuildError(
                f"{name}: agents {first!r} and {other!r} of group {group!r} have different spaces or masks: "
                f"{spaces[first]} and {spaces[other]}; put them in groups of their own with "
                f"groups={{{first!r}: [{first!r}], {other!r}: [{other!r}], ...}}"
            )
        found.append(GroupSpec(group, members, *spaces[first]))
    return tuple(found)
