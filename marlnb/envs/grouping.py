"""Groups of agents that share spaces, from the spaces of single agents."""

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
    """Specs of the groups that the user defines, or of those by the id convention `<group>_<index>`.

    Args:
        name: the environment's name, for messages.
        observations: by agent, in the environment's order.
        actions: by agent, in the environment's order.
        groups: agents by group; empty: by the id convention.
        masked: agents that have an action mask.
    Raises:
        EnvBuildError: the groups do not name each agent once, or combine agents with different spaces.
    """
    try:
        grouped = group_agents(tuple(observations), groups)
    except ConfigError as error:
        raise EnvBuildError(f"{name}: {error}") from error
    specs = []
    for group, members in grouped.items():
        first = members[0]
        spaces = {agent: (observations[agent], actions[agent], agent in masked) for agent in members}
        other = next((agent for agent in members if spaces[agent] != spaces[first]), None)
        if other is not None:
            raise EnvBuildError(
                f"{name}: agents {first!r} and {other!r} of group {group!r} have different spaces or masks: "
                f"{spaces[first]} and {spaces[other]}; put them in separate groups, "
                f"groups={{{first!r}: [{first!r}], {other!r}: [{other!r}], ...}}"
            )
        specs.append(GroupSpec(group, members, *spaces[first]))
    return tuple(specs)
