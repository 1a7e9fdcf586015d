"""Which steps and episodes of an intervention count: `rows=` and `given=` on episodes that are played in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from marlnb.analysis.data.given import Given
from marlnb.analysis.data.played_episodes import PlayedEpisodes
from marlnb.analysis.data.row_condition import Condition, rows_where
from marlnb.analysis.data.strata import strata_of
from marlnb.analysis.data.trajectories import Trajectories
from marlnb.errors import AnalysisError


class CountedSteps:
    """The steps of the episodes without edits that `rows=` selects, batch by batch.

    Attributes:
        n_selected: by group, how many rows of its agents were selected so far.
    """

    def __init__(self, condition: Condition | None) -> None:
        self.condition, self.n_selected = condition, Counter[str]()
        self._errors: list[AnalysisError] = []

    def of(self, baseline: Trajectories) -> dict[str, Tensor] | None:
        """By group, `[time, env, agent]` bool; None: every step."""
        if self.condition is None:
            return None
        if not isinstance(self.condition, str):
            raise AnalysisError('rows= must be a condition, such as "t < 5", since the episodes are yet to be played')
        played, counted = PlayedEpisodes([baseline]), {}
        for name in baseline.env.group_names:
            source, all_rows = played.source(name)
            try:
                selected = rows_where(source, all_rows, self.condition)
            except AnalysisError as error:  # another group's names, or no such row in this batch
                self._errors.append(error)
                selected = np.zeros((len(all_rows), source.env.group(name).n_agents), bool)
            self.n_selected[name] += int(selected.sum())
            (counted[name],) = played.by_step(selected)
        return counted

    def notes(self, groups: Sequence[str]) -> tuple[str, ...]:
        """What the condition applies to.

        Raises:
            AnalysisError: it selects no row of any group.
        """
        if self.condition is None:
            return ()
        if not any(self.n_selected.values()):
            raise next((error for error in self._errors if "did you mean" in str(error)), self._errors[0])
        without = [name for name in groups if not self.n_selected[name]]
        left_out = f"; {', '.join(without)} has no such step" if without else ""
        return (f"effects on actions count steps with {self.condition}; returns count whole episodes{left_out}",)


def episode_classes(baseline: Trajectories, given: Given) -> list[str | None]:
    """By episode, the class of what is given, such as "goal = red"; None where it is unknown.

    Raises:
        AnalysisError: an unknown name, a quantity, or a label that changes during an episode or differs between agents.
    """
    played = PlayedEpisodes([baseline])
    errors, strata, rows = [], None, None
    for name in baseline.env.group_names:
        source, rows = played.source(name)
        try:
            strata = strata_of(source, rows, given)
            break
        except AnalysisError as error:  # perhaps the label of another group
            errors.append(error)
    if strata is None or rows is None:
        raise errors[0]
    classes: list[str | None] = []
    for episode in np.unique(rows.episode):
        present = np.unique(strata.index[rows.episode == episode])
        if len(present) > 1:
            raise AnalysisError(
                f"given={strata} changes during an episode, or differs between agents, so episodes have no class: "
                "choose steps with rows=, or name the agent: (agent, label)"
            )
        classes.append(None if present[0] < 0 else strata.names[present[0]])
    return classes
