"""Patch: puts activations in from another episode, time or agent of a recording, or from another agent of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError, unknown
from marlnb.models.hooks import episode_context as clock
from marlnb.models.hooks.activation_sources import Donor, open_donor, source_path
from marlnb.models.hooks.edit import EDITS, Change, Edit, Place
from marlnb.models.hooks.edits_hook import check_moment

Episode = int | Literal["same", "other"]


@EDITS.register("patch")
@dataclass(frozen=True)
class Patch(Edit):
    """Puts a donor's activations in the place of the chosen agents' own.

    With a `source`, a recording, the donor's row is that of its episode `episode` at the step `at`, or as many steps in
    as the copy is, moved by `shift`. Where that episode has no such step the activation stays as it is. Without one,
    the donor is another agent of the same group at the same step: A's state put into B.

    Attributes:
        source: a recording, or its path; digest: which one it must be.
        donors: the agent that gives, or one for each agent that is patched, in the group's order; None: each agent's
            own activations, which takes a source.
        episode: a number in the recording; "same", the number that the copy plays (a rollout with the recording's seed
            has the same episodes); "other", the recorded one after that.
        at: a step of the donor's episode; None: the copy's own. shift: added to the copy's own step.
    """

    source: str | None = None
    donors: tuple[str, ...] | None = field(default=None, kw_only=True)
    episode: Episode = field(default="same", kw_only=True)
    at: int | None = field(default=None, kw_only=True)
    shift: int = field(default=0, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", source_path(self.source))
        if self.donors is not None:
            given = (self.donors,) if isinstance(self.donors, str) else tuple(self.donors)
            object.__setattr__(self, "donors", given)
        if self.source is None and self.donors is None:
            raise ConfigError("a patch takes source=, a recording, or donors=, agents of the same step")
        if not isinstance(self.episode, int) and self.episode not in ("same", "other"):
            raise ConfigError(unknown("episode of a patch", str(self.episode), ("same", "other", "a number")))
        if self.source is None and (self.episode != "same" or self.at is not None or self.shift):
            raise ConfigError("a patch from another agent of the same step has no episode, at or shift")

    def begin(self, place: Place) -> Change:
        donors = self._donors(place)
        if self.source is None:
            rows = [_row_of(agent, place) for agent in donors]
            units = torch.tensor(place.units)
            return lambda values, whole: whole[..., rows, :][..., units.to(whole.device)]
        donor = open_donor(self.source, self.digest)
        units_read = list(place.units)
        given = torch.stack(
            [torch.from_numpy(donor.values(place.site.name, agent)[:, units_read]) for agent in donors], dim=1
        )
        return self._from_rows(given, RowTable(donor), place)

    def _from_rows(self, given: Tensor, table: RowTable, place: Place) -> Change:
        """given: `[row, agent, unit]`."""
        asking = f"the patch at {self.site!r}"

        def put(values: Tensor, whole: Tensor) -> Tensor:
            time_step = clock.now(asking)
            check_moment(whole, time_step.t, place)
            t = time_step.t + self.shift if self.at is None else torch.full_like(time_step.t, self.at)
            rows = table.rows(table.episodes(self.episode, time_step.episode), t)
            there = rows >= 0
            found = given[rows.clamp(min=0)].to(values)
            return found if bool(there.all()) else torch.where(there.to(values.device)[:, None, None], found, values)

        return put

    def _donors(self, place: Place) -> Sequence[str]:
        if self.donors is None:
            return place.agents
        if len(self.donors) == 1:
            return self.donors * len(place.agents)
        if len(self.donors) != len(place.agents):
            raise ShapeError(
                f"{len(self.donors)} donors for the agents {', '.join(place.agents)}; give one, or one each"
            )
        return self.donors


class RowTable:
    """Where a recording's rows are: by number of the episode and step."""

    def __init__(self, donor: Donor) -> None:
        self.recorded = torch.tensor(np.unique(donor.episode), dtype=torch.long)
        if not len(self.recorded):
            raise ConfigError("the recording to patch from has no rows")
        shape = (int(donor.episode.max()) + 1, int(donor.t.max()) + 1)
        self._table = torch.full(shape, -1, dtype=torch.long)
        episode, t = (torch.tensor(column, dtype=torch.long) for column in (donor.episode, donor.t))
        self._table[episode, t] = torch.arange(len(t))

    def episodes(self, which: Episode, playing: Tensor) -> Tensor:
        """The donor's episode for each copy, from the numbers that the copies play; -1 for one that does not count.

        Raises:
            ConfigError: it is not recorded.
        """
        counts = playing >= 0
        if which == "other":
            place = torch.searchsorted(self.recorded, playing.clamp(min=0), right=True)
            chosen = self.recorded[place % len(self.recorded)]
        else:
            chosen = playing if which == "same" else torch.full_like(playing, int(which))
            missing = chosen[counts & ~torch.isin(chosen, self.recorded)]
            if len(missing):
                raise ConfigError(
                    f"the recording to patch from has no episode {int(missing[0])}; it has {len(self.recorded)}, "
                    f"from {int(self.recorded[0])} to {int(self.recorded[-1])}"
                )
        return torch.where(counts, chosen, -1)

    def rows(self, episode: Tensor, t: Tensor) -> Tensor:
        """`[env]`, -1 where there is none."""
        n_episodes, n_steps = self._table.shape
        there = (episode >= 0) & (episode < n_episodes) & (t >= 0) & (t < n_steps)
        return torch.where(there, self._table[episode.clamp(0, n_episodes - 1), t.clamp(0, n_steps - 1)], -1)


def _row_of(agent: str, place: Place) -> int:
    """Where a donor lies in the output of the place's module.

    Raises:
        ShapeError: it is not of the group, or its activations are put out by another module.
    """
    names = place.policy.group.agents
    if agent not in names:
        raise ShapeError(unknown(f"donor in the group {place.policy.group.name!r}", agent, names))
    for site in (place.site, *place.policy.sites()):
        row = site.row_of(names.index(agent)) if site.module is place.site.module and not site.shared_forward else None
        if row is not None:
            return row
    raise ShapeError(
        f"{agent} and {', '.join(place.agents)} do not share the module of {place.site.name!r}; "
        "patch from a recording: Patch(site, source=recording, donors=...)"
    )
