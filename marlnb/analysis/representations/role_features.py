"""By what agents are told apart: what their units, or their behaviour, were over stretches of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.views import View, site_agents
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class Stretches:
    """A point for each agent and stretch of an episode, where all the agents have acted.

    Attributes:
        values: `[stretch, agent, feature]`; episode, t: `[stretch]`, where it begins.
    """

    values: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    agents: tuple[str, ...]
    features: tuple[str, ...]


def unit_stretches(
    recording: Recording, site: str, agents: Sequence[str] | None, window: int | None, checkpoint: int | None
) -> Stretches:
    """Mean activations at a site."""
    named = site_agents(recording, site, agents)
    parts = []
    for agent in named:
        units = View(recording, site, agent, checkpoint=checkpoint).open()
        parts.append((units.all(), units.episode, units.t))
    n = parts[0][0].shape[1]
    return _stretches(parts, tuple(named), tuple(f"unit {k}" for k in range(n)), window)


def behaviour_stretches(
    recording: Recording, agents: Sequence[str] | None, window: int | None, checkpoint: int | None
) -> Stretches:
    """How often each action is taken, how often it changes, and the reward of a step.

    Raises:
        AnalysisError: agents with other actions, or actions that are not discrete.
    """
    named = list(agents) if agents is not None else list(recording.agents)
    parts, actions = [], None
    for agent in named:
        if agent not in recording.agents:
            raise AnalysisError(unknown("recorded agent", agent, recording.agents))
        group = next(group for group in recording.spec.groups if agent in group.agents)
        if group.action.kind != "discrete" or group.action != (actions or group.action):
            raise AnalysisError("behaviour is compared between agents with the same discrete actions; name a site")
        actions, place = group.action, group.agents.index(agent)
        source = RowSource(recording, group.name)
        rows = source.rows(None, source.one_checkpoint(checkpoint))
        kept = source.acting(rows)[:, place]
        action = source.field("action", rows)[kept, place]
        episode, t = rows.episode[kept], rows.t[kept]
        changed = np.append(False, (action[1:] != action[:-1]) & (episode[1:] == episode[:-1]))
        taken = np.eye(actions.n[0])[action]
        parts.append((np.column_stack([taken, changed, source.field("reward", rows)[kept, place]]), episode, t))
    assert actions is not None
    names = actions.names or tuple(map(str, range(actions.n[0])))
    return _stretches(parts, tuple(named), (*names, "changes of action", "reward"), window)


def _stretches(
    parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    agents: tuple[str, ...],
    features: tuple[str, ...],
    window: int | None,
) -> Stretches:
    """Means over stretches of `window` steps (None: whole episodes) of rows `[row, feature]` by agent."""
    if len(agents) < 2:
        raise AnalysisError(f"roles are told between 2 agents or more; got {list(agents)}")
    span = max(int(t.max()) for _, _, t in parts) + 1
    length = span if window is None else window
    if length < 1:
        raise AnalysisError(f"a window has 1 step or more; got {window}")
    per_episode = -(-span // length)
    keys = [episode.astype(np.int64) * per_episode + t // length for _, episode, t in parts]
    shared = keys[0]
    for key in keys[1:]:
        shared = np.intersect1d(shared, key)
    shared = np.unique(shared)
    if len(shared) < 4:
        raise AnalysisError(f"the agents act together in {len(shared)} stretches only")
    values = np.empty((len(shared), len(agents), len(features)))
    for place, ((x, _, _), key) in enumerate(zip(parts, keys)):
        inside = np.isin(key, shared)
        where = np.searchsorted(shared, key[inside])
        sums = np.zeros((len(shared), len(features)))
        np.add.at(sums, where, x[inside])
        values[:, place] = sums / np.bincount(where, minlength=len(shared))[:, None]
    return Stretches(values, shared // per_episode, shared % per_episode * length, agents, features)
