"""`View`: whose units are analysed, at which site, over which episodes; also units of other policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.data.policy_activations import compatible_policy, policy_activations, recorded_agents_at
from marlnb.analysis.data.rows import RowSource
from marlnb.display.formatting import count, short_path
from marlnb.errors import AnalysisError, shown, unknown
from marlnb.models.hooks.sites import group_of
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True, repr=False)
class View:
    """One agent's units at one site of a recording.

    Attributes:
        recording: the recording whose rows are read, or its path.
        site: the site's name.
        agent: the agent's name; None where the site belongs to a single agent.
        policy_source: another run, or external agents, whose policies observe what was recorded, so that two networks
            are compared at the same time steps; None: the recorded activations.
        checkpoint: of `policy_source` (None: the last), or of the recording where it spans several.
        episodes: their numbers; None: all.
    """

    recording: RecordingLike
    site: str
    agent: str | None = None
    policy_source: PolicySourceLike | None = None
    checkpoint: Which | None = None
    episodes: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        agent, recording = self.agent or "the only agent", opened_recording(self.recording)
        episodes = ""
        if self.episodes is not None:
            episodes = f", {count(len(recording.episode_numbers(self.episodes)), 'episode')}"
        checkpoint = "" if self.checkpoint is None else f", checkpoint {self.checkpoint}"
        of = "" if self.policy_source is None else f", with the policies of {as_policy_source(self.policy_source).path}"
        return f"<View of {self.site}, {agent}, in {short_path(recording.path)}{checkpoint}{episodes}{of}>"

    def open(self) -> Units:
        """The units, to be read when needed; policies of a `policy_source` are evaluated here.

        Raises:
            AnalysisError: no such agent at the site, several agents and none named, or no rows at which it acts.
            RecordingError: there is no recording at the path.
            SiteError: no such site.
        """
        recording = opened_recording(self.recording)
        source = RowSource(recording, group_of(self.site))
        if self.policy_source is None:
            rows = source.rows(self.episodes, source.resolve_checkpoint(_iteration(self.checkpoint)))
            agent = _resolve_agent(self.agent, list(recording[self.site].labels["agent"]), self.site)
            acting = source.acting_positions(rows, agent)
            array = recording[self.site].sel(agent=agent)
            n_units = array.shape[-1]

            def read(positions: np.ndarray) -> np.ndarray:
                return array.read_rows(rows.index[acting[positions]])
        else:
            rows, other = source.rows(self.episodes), as_policy_source(self.policy_source)
            policy = compatible_policy(source, other, self.checkpoint or "last", self.site, rows)
            agent = _resolve_agent(self.agent, recorded_agents_at(source, policy, self.site), self.site)
            acting = source.acting_positions(rows, agent)
            values = policy_activations(source, policy, self.site, rows)[:, source.agents.index(agent)]
            n_units = values.shape[-1]

            def read(positions: np.ndarray) -> np.ndarray:
                return np.asarray(values[acting[positions]])

        index, episode, t = (x[acting] for x in (rows.index, rows.episode, rows.t))
        return Units(self._name(agent), agent, source, index, episode, t, n_units, read)

    def _name(self, agent: str) -> str:
        name = f"{agent} {self.site.split('/', 1)[1]}"
        if self.policy_source is not None:
            return f"{name} of {as_policy_source(self.policy_source).path.name}@{self.checkpoint or 'last'}"
        return name if self.checkpoint is None else f"{name}@{self.checkpoint}"


@dataclass(frozen=True)
class Units:
    """An agent's units at the rows at which it acts, read when needed.

    Attributes:
        name: of the view, for tables and figures.
        agent: the agent's name.
        source: the recording, as its group sees it.
        index: `[row]`, positions in the file.
        episode: `[row]`, the episode's number.
        t: `[row]`, steps since the episode began.
        n_units: units of the site.
    """

    name: str
    agent: str
    source: RowSource
    index: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    n_units: int
    _read: Callable[[np.ndarray], np.ndarray]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents of the environment, which determine the agents' colours."""
        return self.source.env.agents

    @property
    def agent_index(self) -> int:
        """The agent's index within its group."""
        return self.source.agents.index(self.agent)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """`[row, unit]` float32, at positions among these rows."""
        return self._read(positions)

    def all(self) -> np.ndarray:
        """`[row, unit]` float32.

        Raises:
            AnalysisError: a value is not finite.
        """
        values = self._read(np.arange(len(self)))
        if not np.isfinite(values).all():
            raise AnalysisError(f"{self.name} has values that are not finite")
        return values


def as_view(view: View | tuple[RecordingLike, str] | tuple[RecordingLike, str, str]) -> View:
    """The view itself, or that of (recording or its path, site) or (recording or its path, site, agent).

    Raises:
        AnalysisError: it is neither.
    """
    if isinstance(view, View):
        return view
    if not isinstance(view, tuple | list) or len(view) not in (2, 3):
        given = shown(view).partition("\n")[0]  # a recording has many lines
        raise AnalysisError(
            f"expected a view: mnb.View(...), (recording, site) or (recording, site, agent); got {given}"
        )
    return View(*view)


def match_recorded_sites(recording: Recording, patterns: str | Sequence[str]) -> list[str]:
    """Recorded sites by name or glob, without duplicates, in the recording's order.

    Raises:
        AnalysisError: a pattern that matches none, or an empty list.
    """
    matches = set[str]()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        names = [name for name in recording.sites if fnmatchcase(name, pattern)]
        if not names:
            raise AnalysisError(unknown("recorded site", pattern, recording.sites))
        matches.update(names)
    if not matches:
        raise AnalysisError(empty_list("recorded site", recording.sites))
    return [name for name in recording.sites if name in matches]


def chosen_names(kind: str, names: str | Iterable[str], valid: Iterable[str]) -> list[str]:
    """One name, or several, as a list.

    Args:
        kind: what they name, as for `unknown`: "agent at 'listener/actor/hidden_1'".
    Raises:
        AnalysisError: a name is not valid, or the list is empty.
    """
    chosen, valid = [names] if isinstance(names, str) else list(names), list(valid)
    for name in chosen:
        if name not in valid:
            raise AnalysisError(unknown(kind, name, valid))
    if not chosen:
        raise AnalysisError(empty_list(kind, valid))
    return chosen


def empty_list(kind: str, valid: Iterable[str]) -> str:
    return f"an empty list chooses no {kind}. Valid: {', '.join(valid)}"


def site_agents(recording: Recording, site: str, agents: str | Iterable[str] | None) -> list[str]:
    """The recorded agents that a site belongs to, or the requested ones among them.

    Raises:
        AnalysisError: the site does not belong to a requested agent, or none is requested.
    """
    available = list(recording[site].labels["agent"])
    return available if agents is None else chosen_names(f"agent at {site!r}", agents, available)


def _resolve_agent(requested: str | None, available: Sequence[str], site: str) -> str:
    if requested is None:
        if len(available) > 1:
            raise AnalysisError(f"site {site} belongs to several agents; choose agent= from {list(available)}")
        if not available:
            raise AnalysisError(f"the recording has no agent that site {site} belongs to")
        return available[0]
    if requested not in available:
        raise AnalysisError(unknown(f"agent at {site!r}", requested, available))
    return requested


def _iteration(checkpoint: Which | None) -> int | None:
    if checkpoint is None or isinstance(checkpoint, int):
        return checkpoint
    if not checkpoint.isdecimal():
        raise AnalysisError(f"a recording's checkpoint is named by its iteration, a whole number; got {checkpoint!r}")
    return int(checkpoint)
