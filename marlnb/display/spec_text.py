"""Specs of environments for people: groups, observations and actions in words, in a line, a table or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marlnb.display.formatting import count

if TYPE_CHECKING:
    from markupsafe import Markup

# `marlnb.specs`, a higher layer, shows itself by this module, which therefore does not import its types

GROUP_HEADER = ("group", "agents", "observation of each", "action of each")
MAX_NAMES = 8
MAX_AGENTS = 6


def spec_text(spec: Any) -> str:
    """Name and length of an episode, then a line for each group, and the labels."""
    lines = [f"<EnvSpec {spec.name}: {episode_text(spec)}"]
    for name, agents, observation, action in group_rows(spec):
        lines.append(f"  {name}: {agents}; observation {observation}; action {action}")
    if spec.labels:
        lines.append(f"  labels: {', '.join(label.name for label in spec.labels)}")
    return "\n".join(lines) + ">"


def spec_html(spec: Any) -> Markup:
    """The same as tables: of the groups, and of the labels with their classes."""
    from marlnb.display.notebook_html import note_html, table_html, title_html

    labels = [(label.name, label.group or "", _label(label.classes)) for label in spec.labels]
    page = title_html(spec.name) + note_html(episode_text(spec)) + table_html(GROUP_HEADER, group_rows(spec))
    return page + table_html(("label", "of each agent of", "values"), labels) if labels else page


def group_text(group: Any) -> str:
    """A group in a line."""
    name, agents, observation, action = group_row(group)
    return f"<GroupSpec {name}: {agents}; observation {observation}; action {action}>"


def group_html(group: Any) -> Markup:
    """A group as a table with one line; all names of features are in `observation.names`."""
    from marlnb.display.notebook_html import table_html

    return table_html(GROUP_HEADER, [group_row(group)])


def episode_text(spec: Any) -> str:
    """How long an episode is, who acts when, and the global state."""
    limit = (
        f"episodes of at most {count(spec.max_steps, 'step')}" if spec.max_steps else "episodes without a step limit"
    )
    turns = "all agents act at the same time" if spec.simultaneous else "agents take turns"
    state = f", global state of shape {list(spec.state_shape)}" if spec.state_shape else ""
    return f"{limit}, {turns}{state}"


def group_rows(spec: Any) -> list[tuple[str, str, str, str]]:
    """One row for each group: name, agents, observation, action."""
    return [group_row(group) for group in spec.groups]


def group_row(group: Any) -> tuple[str, str, str, str]:
    """Name, agents, observation and action of a group."""
    agents = f"{_shortened(group.agents, MAX_AGENTS)} ({group.n_agents})"
    masked = ", masked" if group.has_action_mask else ""
    return group.name, agents, _observation(group.observation), _action(group.action) + masked


def _observation(observation: Any) -> str:
    shape = " x ".join(map(str, observation.shape))
    return f"{shape}: {_shortened(observation.names, MAX_NAMES)}" if observation.names else shape


def _action(action: Any) -> str:
    if action.kind == "continuous":
        return f"continuous, {len(action.low)} from {min(action.low):g} to {max(action.high):g}"
    if action.kind == "discrete":
        names = f": {', '.join(action.names)}" if action.names else ""
        return f"one of {action.n_logits}{names}"
    return f"{action.n_components} choices, {action.n_logits} options in total"


def _label(classes: tuple[str, ...]) -> str:
    return ", ".join(classes) if classes else "a number"


def _shortened(names: Sequence[str], max_names: int) -> str:
    """Names, with "..." in the place of the middle ones where there are more than `max_names`."""
    kept = names if len(names) <= max_names else [*names[: max_names - 2], "...", names[-1]]
    return ", ".join(kept)
