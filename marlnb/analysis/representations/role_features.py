"""Features by which agents are clustered: their units, or their behaviour, averaged over windows of episodes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.views import View, chosen_names, site_agents
from marlnb.analysis.stats.bootstrap import episode_sums
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MIN_WINDOWS = 4
AgentRows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Features `[row, feature]`, episode `[row]` and t `[row]`."""


@dataclass(frozen=True)
class WindowFeatures:
    """A point for each agent and window of an episode in which all agents acted.

    Attributes:
        values: `[window, agent, feature]`.
        episode: `[window]`.
        t: `[window]`, its first step.
        agents: names.
        features: names.
    """

    values: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    agents: tuple[str, ...]
    features: tuple[str, ...]


def unit_features(
    recording: Recording, site: str, agents: str | Sequence[str] | None, window: int | None, checkpoint: int | None
) -> WindowFeatures:
    """Mean activations at a site."""
    names = site_agents(recording, site, agents)
    views = [View(recording, site, agent, checkpoint=checkpoint).open() for agent in names]
    rows = [(units.all(), units.episode, units.t) for units in views]
    return _average_windows(rows, tuple(names), tuple(f"unit {k}" for k in range(views[0].n_units)), window)


def behaviour_features(
    recording: Recording, agents: str | Sequence[str] | None, window: int | None, checkpoint: int | None
) -> WindowFeatures:
    """Frequency of each action, frequency of changes of action, and mean reward per step.

    Raises:
        AnalysisError: an unknown agent, agents with different actions, or actions that are not discrete.
    """
    names = recording.agents if agents is None else chosen_names("recorded agent", agents, recording.agents)
    rows, action_spec = [], None
    for agent in names:
        group = recording.spec.group_of(agent)
        if group.action.kind != "discrete" or group.action != (action_spec or group.action):
            raise AnalysisError("behaviour needs agents with the same discrete actions; for other agents use site=")
        action_spec, agent_index = group.action, group.agents.index(agent)
        source = RowSource(recording, group.name)
        group_rows = source.rows(None, source.resolve_checkpoint(checkpoint))
        acting = source.acting(group_rows)[:, agent_index]
        action = source.field("action", group_rows)[acting, agent_index]
        reward = source.field("reward", group_rows)[acting, agent_index]
        episode, t = group_rows.episode[acting], group_rows.t[acting]
        changed = np.append(False, (action[1:] != action[:-1]) & (episode[1:] == episode[:-1]))
        rows.append((np.column_stack([np.eye(action_spec.n[0])[action], changed, reward]), episode, t))
    assert action_spec is not None
    action_names = action_spec.names or tuple(map(str, range(action_spec.n[0])))
    return _average_windows(rows, tuple(names), (*action_names, "changes of action", "reward"), window)


def _average_windows(
    rows: Sequence[AgentRows], agents: tuple[str, ...], features: tuple[str, ...], window: int | None
) -> WindowFeatures:
    """Means over windows of `window` steps, from each agent's rows; None: whole episodes."""
    if len(agents) < 2:
        raise AnalysisError(f"roles need 2 or more agents; got {list(agents)}")
    max_length = max(int(t.max()) for _, _, t in rows) + 1
    length = max_length if window is None else window
    per_episode = -(-max_length // length)
    window_of_row = [episode.astype(np.int64) * per_episode + t // length for _, episode, t in rows]
    shared = functools.reduce(np.intersect1d, window_of_row)
    if len(shared) < MIN_WINDOWS:
        raise AnalysisError(f"roles need {MIN_WINDOWS} windows in which all agents act; there are {len(shared)}")
    values = np.empty((len(shared), len(agents), len(features)))
    for k, ((x, _, _), windows) in enumerate(zip(rows, window_of_row)):
        in_shared = np.isin(windows, shared)
        index = np.searchsorted(shared, windows[in_shared])
        sums = episode_sums(x[in_shared], index, len(shared))
        values[:, k] = sums / np.bincount(index, minlength=len(shared))[:, None]
    return WindowFeatures(values, shared // per_episode, shared % per_episode * length, agents, features)
