"""View: whose units at which site, over which episodes; and the same moments seen by other agents' networks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.data.rows import RowSource
from marlnb.errors import AnalysisError, unknown
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.runs.run import Which

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class View:
    """One agent's units at one site of a recording.

    Attributes:
        agent: None where the site is of a single agent.
        subject: another run (or agents from elsewhere) whose policies are shown the recording's observations, so that
            two networks are compared on the same moments; None: what was recorded.
        checkpoint: which of the subject's (None: the last), or which of the recording's, where it spans several.
        episodes: by number; None: all.
    """

    recording: Recording
    site: str
    agent: str | None = None
    subject: PolicySource | str | os.PathLike[str] | None = None
    checkpoint: Which | None = None
    episodes: tuple[int, ...] | None = None

    def open(self) -> Units:
        """What is to be read, nothing read yet (but for a subject's policies, which are run here).

        Raises:
            AnalysisError: no such agent at the site, or several and none was named; no rows at which it acts.
            SiteError: no such site.
        """
        source = RowSource(self.recording, self.site.split("/")[0])
        own_checkpoint = None if self.subject is not None else source.resolve_checkpoint(_iteration(self.checkpoint))
        rows = source.rows(self.episodes, own_checkpoint)
        if self.subject is None:
            bearers = list(self.recording[self.site].labels["agent"])
            agent = _agent(self.agent, bearers, self.site)
            values = self.recording[self.site].sel(agent=agent)
            n_units = values.shape[-1]

            def read(places: np.ndarray) -> np.ndarray:
                return np.asarray(replace(values, rows=rows.index[kept[places]]).to_numpy())
        else:
            from marlnb.analysis.data.policy_activations import shown_activations

            agent = _agent(self.agent, source.recorded_agents(), self.site)
            found = shown_activations(source, as_policy_source(self.subject), self.checkpoint or "last", self.site, rows)
            own = found[:, source.env.group(source.group).agents.index(agent)]
            n_units = own.shape[-1]

            def read(places: np.ndarray) -> np.ndarray:
                return np.asarray(own[kept[places]])

        acting = source.acting(rows)[:, source.env.group(source.group).agents.index(agent)]
        kept = np.flatnonzero(acting)
        if not len(kept):
            raise AnalysisError(f"{agent} acts at none of the {len(rows)} rows")
        return Units(
            self._name(agent), agent, source, rows.index[kept], rows.episode[kept], rows.t[kept], n_units, read
        )

    def _name(self, agent: str) -> str:
        at = "" if self.checkpoint is None else f"@{self.checkpoint}"
        whose = at if self.subject is None else f" of {_subject_name(self.subject)}@{self.checkpoint or 'last'}"
        return f"{agent} {self.site.split('/', 1)[1]}{whose}"


@dataclass(frozen=True)
class Units:
    """An agent's units over the rows at which it acts, read when asked for.

    Attributes:
        index: `[row]`, where the rows lie in the file; episode, t: `[row]`.
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
        """All of the environment's, for their colours."""
        return self.source.env.agents

    @property
    def place(self) -> int:
        """The agent's, among those of its group."""
        return self.source.env.group(self.source.group).agents.index(self.agent)

    def at(self, places: np.ndarray) -> np.ndarray:
        """`[row, unit]` float32 at places among these rows."""
        return self._read(places)

    def all(self) -> np.ndarray:
        """`[row, unit]` float32.

        Raises:
            AnalysisError: a value is not finite.
        """
        values = self._read(np.arange(len(self)))
        if not np.isfinite(values).all():
            raise AnalysisError(f"{self.name} has values that are not finite")
        return values


def as_view(given: View | tuple[Recording, str] | tuple[Recording, str, str]) -> View:
    """A view as it is, or that of (recording, site) or (recording, site, agent)."""
    return given if isinstance(given, View) else View(*given)


def site_agents(recording: Recording, site: str, agents: Sequence[str] | None) -> list[str]:
    """The recorded agents that a site is of, or those of them that were asked for.

    Raises:
        AnalysisError: one that it is not of.
    """
    bearers = list(recording[site].labels["agent"])
    for agent in agents or ():
        if agent not in bearers:
            raise AnalysisError(unknown(f"agent at {site!r}", agent, bearers))
    return bearers if agents is None else list(agents)


def _agent(asked: str | None, bearers: Sequence[str], site: str) -> str:
    if asked is None:
        if len(bearers) > 1:
            raise AnalysisError(f"whose units at {site}? agent must be one of {list(bearers)}")
        return bearers[0]
    if asked not in bearers:
        raise AnalysisError(unknown(f"agent at {site!r}", asked, bearers))
    return asked


def _iteration(checkpoint: Which | None) -> int | None:
    if checkpoint is None or isinstance(checkpoint, int):
        return checkpoint
    if not checkpoint.isdigit():
        raise AnalysisError(f"a recording's checkpoint is chosen by its iteration; got {checkpoint!r}")
    return int(checkpoint)


def _subject_name(subject: PolicySource | str | os.PathLike[str]) -> str:
    return as_policy_source(subject).path.name
