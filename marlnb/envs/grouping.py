"""Groups of agents that share spaces, from the spaces of single agents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from marlnb.errors import ConfigError, EnvBuildError
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec, group_agents


def group_specs(
    name: str,
    observations: Mapping[str, ObservationSpec],
    actions: Mapping[str, ActionSpec],
    groups: Mapping[str, tuple[str, ...]],
    masked: Collection[str] = (),
) -> tuple[GroupSpec, ...]:
    """Specs of the groups that the user defines, or of those by the id convention `<group>_<index>`.

    A group's features are named if all of its agents have the same names.

    Args:
        name: the environment's name, for messages.
        observations: by agent, in the environment's order.
        actions: by agent, in the environment's order.
        groups: agents by group; empty: by the id convention.
        masked: agents that have an action mask; a group has one if any of its agents has.
    Raises:
        EnvBuildError: the groups do not name each agent once, or combine agents with different spaces, or a group with
            continuous actions has a mask.
    """
    try:
        grouped = group_agents(tuple(observations), groups)
    except ConfigError as error:
        raise EnvBuildError(f"{name}: {error}") from error
    specs = []
    for group, members in grouped.items():
        first, has_mask = members[0], any(agent in masked for agent in members)
        unnamed = {agent: replace(observations[agent], names=()) for agent in members}
        for what, by_agent in (("observation", unnamed), ("action", actions)):
            other = next((agent for agent in members if by_agent[agent] != by_agent[first]), None)
            if other is not None:
                raise EnvBuildError(
                    f"{name}: agents {first!r} and {other!r} of group {group!r} have different {what} spaces: "
                    f"{by_agent[first]} and {by_agent[other]}; put them in separate groups, "
                    f"groups={{{first!r}: [{first!r}], {other!r}: [{other!r}], ...}}"
                )
        if has_mask and actions[first].kind == "continuous":
            raise EnvBuildError(
                f"{name}: group {group!r} has an action mask, which needs discrete actions; its actions are continuous"
            )
        same_names = len({observations[agent].names for agent in members}) == 1
        observation = observations[first] if same_names else unnamed[first]
        specs.append(GroupSpec(group, members, observation, actions[first], has_mask))
    return tuple(specs)
