"""Inheritance: what the members of a population kept of their parents."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result
from marlnb.display.formatting import count
from marlnb.errors import AnalysisError, unknown
from marlnb.populations.training.evolution.growth import MAX_RELATIVE_CHANGE


@dataclass(frozen=True, eq=False, repr=False)
class Inheritance(Result):
    """Each member of a population next to its parent, on the same observations.

    Attributes:
        population: name of the run.
        site: whose units were compared.
        agent: whose observations all networks received.
        members: their names, as "12-3": generation and place.
        parents: `[member]`, None for founders and where the parent was not compared.
        operators: `[member]`, what was done to the parent.
        fitness: `[member]`.
        output_change: `[member]`, the largest relative change of an output by the mutation; NaN where neither networks
            nor weights were mutated.
        similarity: `[member]`, linear CKA to the parent's units at the end of both generations; NaN without parent.
        low: `[member]`, lower end of its 95% interval over episodes.
        high: `[member]`, upper end.
        shuffled: `[member]`, the similarity with episodes paired at random, the control.
        concepts: names of the labels that were decoded.
        scores: `[member, concept]`, balanced accuracy or R².
        controls: `[member, concept]`, the largest score of the observation and of untrained networks.
        held: `[member, concept]` bool, whether the score is above those of the observation and of untrained networks.
        difference: `[member, concept]`, the score minus the parent's; NaN without parent.
        difference_low: `[member, concept]`, lower end of its 95% interval over folds.
        difference_high: `[member, concept]`, upper end.
        notes: members that were left out.
        warnings: reasons not to trust the result.
    """

    population: str
    site: str
    agent: str
    members: tuple[str, ...]
    parents: tuple[str | None, ...]
    operators: tuple[str, ...]
    fitness: np.ndarray
    output_change: np.ndarray
    similarity: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shuffled: np.ndarray
    concepts: tuple[str, ...]
    scores: np.ndarray
    controls: np.ndarray
    held: np.ndarray
    difference: np.ndarray
    difference_low: np.ndarray
    difference_high: np.ndarray
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def preserved(self) -> tuple[bool, ...]:
        """`[member]`, whether the operator left all outputs of the networks as they were."""
        return tuple(isnan(change) or change <= MAX_RELATIVE_CHANGE for change in self.output_change)

    def holds(self, member: str, concept: str) -> bool:
        """Whether a member holds a concept. Raises AnalysisError: there is no such member or concept."""
        return bool(self.held[self._member(member), self._concept(concept)])

    def gained(self, member: str) -> tuple[str, ...]:
        """The concepts that a member holds and its parent does not; none of a founder."""
        return self._changed(member, is_held=True)

    def lost(self, member: str) -> tuple[str, ...]:
        """The concepts that a member's parent holds and it does not."""
        return self._changed(member, is_held=False)

    def origins(self, concept: str) -> dict[str, tuple[str, ...]]:
        """Where a concept came into the population, and who has it from there.

        Returns:
            By founder that holds it or member that gained it, the members that hold it through an unbroken line of
            holders from there, itself first.
        """
        column = self._concept(concept)
        origin: dict[str, str] = {}
        carriers: dict[str, list[str]] = {}
        for k, (member, parent) in enumerate(zip(self.members, self.parents)):
            if self.held[k, column]:
                origin[member] = origin.get(parent or "", member)
                carriers.setdefault(origin[member], []).append(member)
        return {member: tuple(names) for member, names in carriers.items()}

    @property
    def verdict(self) -> str:
        """How alike children are to their parents, and where each concept came from and went."""
        with_parent = np.flatnonzero(np.isfinite(self.similarity))
        where = f"At {self.agent} {self.site}"
        if not len(with_parent):
            text = f"{where}, no member was compared with a parent"
        else:
            n = len(with_parent)
            children = "1 child" if n == 1 else f"{n} children"
            least = int(with_parent[np.argmin(self.similarity[with_parent])])
            text = (
                f"{where}, the units of {children} have a median CKA of "
                f"{np.median(self.similarity[with_parent]):.2f} to their parents' (episodes paired at random "
                f"{np.median(self.shuffled[with_parent]):.2f}); the least similar is {self.members[least]} "
                f"({self.operators[least]}, {self.similarity[least]:.2f} [{self.low[least]:.2f}, "
                f"{self.high[least]:.2f}])"
            )
        n_changed = self.preserved.count(False)
        text += f"; {count(n_changed, 'mutation')} changed what the networks compute"
        return "; ".join([text, *map(self._history, self.concepts)]) + "."

    def table(self) -> pd.DataFrame:
        """One row for each member: how alike it is to its parent, and each concept's score."""
        table = pd.DataFrame(
            {
                "member": self.members,
                "parent": self.parents,
                "operator": self.operators,
                "preserved": self.preserved,
                **{name: getattr(self, name) for name in ("output_change", "similarity", "low", "high", "shuffled")},
                "gained": [", ".join(self.gained(member)) for member in self.members],
                "lost": [", ".join(self.lost(member)) for member in self.members],
                "fitness": self.fitness,
            }
        )
        for column, concept in enumerate(self.concepts):
            for name in ("scores", "controls", "held", "difference", "difference_low", "difference_high"):
                table[f"{concept} {_SINGULAR.get(name, name)}"] = getattr(self, name)[:, column]
        return table

    def _repr_table(self) -> pd.DataFrame:
        columns = ["member", "parent", "operator", "preserved", "similarity", "gained", "lost"]
        return self.table()[columns + [f"{concept} score" for concept in self.concepts]]

    def _history(self, concept: str) -> str:
        origins = self.origins(concept)
        n_held = sum(map(len, origins.values()))
        lost = [member for member in self.members if concept in self.lost(member)]
        text = f"{concept} is held by {n_held} of {count(len(self.members), 'member')}"
        if origins:
            parts = [f"{member} ({count(len(names), 'member')})" for member, names in origins.items()]
            text += f", from {', '.join(parts)}"
        return text + (f", and lost at {', '.join(lost)}" if lost else "")

    def _changed(self, member: str, *, is_held: bool) -> tuple[str, ...]:
        k = self._member(member)
        parent = self.parents[k]
        if parent is None:
            return ()
        before, after = self.held[self._member(parent)], self.held[k]
        return tuple(name for name, was, now in zip(self.concepts, before, after) if was != now and now == is_held)

    def _member(self, name: str) -> int:
        if name not in self.members:
            raise AnalysisError(unknown("member that was compared", name, self.members))
        return self.members.index(name)

    def _concept(self, name: str) -> int:
        if name not in self.concepts:
            raise AnalysisError(unknown("concept that was decoded", name, self.concepts))
        return self.concepts.index(name)


_SINGULAR = {"scores": "score", "controls": "control"}
