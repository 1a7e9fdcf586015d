"""Confounds of a direction: observed features and labels that it carries besides the concept that it stands for.

In a pursuit, all chasers head for the prey, so the direction that reads one chaser's heading also carries where the
prey is. Erasing it then changes what follows from the prey's position, and this is no use of the heading.

A quantity is a candidate if the projection onto the directions depends on it while the concept stays the same. An
observed feature that the concept all but determines is none: it is the form in which the agent observes the concept.
The agent's own action is none either, since a concept that is used has effects on it; only where the concept is what
another agent does at the same step, which no agent can have observed, the own action is always tested as if it were
given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from marlnb.analysis.data.given import Given, GivenColumns, given_columns
from marlnb.analysis.data.labels import FIELD_LABELS, Label
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.interventions.direction_tests import DirectionTests
from marlnb.analysis.interventions.usage_result import Confound, beyond_random
from marlnb.analysis.stats.given_patterns import explained_share, patterns
from marlnb.errors import AnalysisError

STRONG = 0.5
"""A correlation from which on a quantity is tested as a confound (Cohen 1988, section 3.2: a large one)."""
CARRIES = 0.8
"""Share of an observed quantity's variance from which on the concept all but determines it."""
OWN_ACTION = "action"
MAX_CANDIDATES = 5
MAX_NAMED = 3


@dataclass(frozen=True)
class Candidate:
    """A quantity that the directions carry besides the concept.

    Attributes:
        name: of the feature or label.
        values: `[row, column]`.
        correlation: multiple correlation with the projection, where the concept is held fixed.
    """

    name: str
    values: np.ndarray
    correlation: float


@dataclass(frozen=True)
class Correlates:
    """What correlates with the projection onto the directions.

    Attributes:
        candidates: for confounds, the strongest first; at most MAX_CANDIDATES.
        n_candidates: how many there are.
        carried_by: names of what the concept all but determines, the strongest first; at most MAX_NAMED.
    """

    candidates: tuple[Candidate, ...]
    n_candidates: int
    carried_by: tuple[str, ...]


def concept_label(source: RowSource, rows: Rows, concept: str) -> GivenColumns | None:
    """The values of the concept that a direction stands for ("goal = red" stands for the label goal).

    None where the episodes have no such label.
    """
    name = concept.split(" = ")[0].split(" vs. ")[0]
    words = tuple(name.split(" "))
    labels: list[Label] = [name]
    if len(words) in (2, 3) and words[0] in source.recording.agents:
        labels.append(cast(Label, words))
    for label in labels:
        try:
            return given_columns(source, rows, label)
        except AnalysisError:
            continue
    return None


def with_own_action(given: Given | None, concept: str, agent: str, agents: Sequence[str]) -> Given | None:
    """What is given, with the agent's own action where the concept is what another agent does at the same step.

    The concept is in words: the other agent, a field, and a component where its action has several.

    What both agents observe is then a common cause of the concept and of the own action.
    """
    words = concept.split(" = ")[0].split(" ")
    if len(words) not in (2, 3) or words[0] not in agents or words[0] == agent or words[1] not in FIELD_LABELS:
        return given
    others = given if isinstance(given, list) else [] if given is None else [given]
    is_there = any(isinstance(label, str | tuple) and label in (OWN_ACTION, (agent, OWN_ACTION)) for label in others)
    return others if is_there else [*others, OWN_ACTION]


def correlates(
    source: RowSource, rows: Rows, counted: np.ndarray, agent: int, projection: np.ndarray, concept: GivenColumns,
    *, excluded: Sequence[str] = (),
) -> Correlates:  # fmt: skip
    """The observed features and labels that correlate with the projection onto the directions.

    Args:
        counted: `[row]` bool, the rows that count.
        agent: index in the group.
        projection: `[counted row, direction]`.
        concept: the concept's values.
        excluded: names that are no candidates, such as those given.
    """
    known = concept.known[counted, agent]
    fixed, projected = concept.values[counted, agent][known], projection[known]
    candidates, carriers = [], []
    for name, values in _quantities(source, rows, counted, agent):
        if name in (*concept.names, *excluded) or not np.ptp(values[known], axis=0).any():
            continue
        values = values[known]
        if explained_share(values, fixed) >= CARRIES:
            share = explained_share(projected, values)
            carriers += [(share, name)] if share >= STRONG**2 else []
            continue
        share = explained_share(projected, values, fixed)
        if share >= STRONG**2:
            candidates.append(Candidate(name, values, float(np.sqrt(share))))
    candidates.sort(key=lambda candidate: -candidate.correlation)
    names = tuple(name for _, name in sorted(carriers, reverse=True)[:MAX_NAMED])
    return Correlates(tuple(candidates[:MAX_CANDIDATES]), len(candidates), names)


def _quantities(source: RowSource, rows: Rows, counted: np.ndarray, agent: int) -> Iterator[tuple[str, np.ndarray]]:
    """Name and values `[counted row, column]` of each observed feature and label that is known at all these rows."""
    for name in dict.fromkeys([*source.recording.feature_names(source.group), *source.recording.labels]):
        try:
            columns = given_columns(source, rows, name)
        except AnalysisError:  # another group's label
            continue
        assert columns is not None
        if columns.known[counted, agent].all():
            yield name, columns.values[counted, agent]


def confound_tests(
    direction_tests: DirectionTests, candidates: Sequence[Candidate], held: np.ndarray, given: np.ndarray,
    negligible: float,
) -> tuple[Confound, ...]:  # fmt: skip
    """The effects without what the directions carry of the candidates: of all of them at once, and, where these explain
    the effect, of each by itself.

    Args:
        held: `[step, column]`, the concept.
        given: `[step, column]`, removed as well; may have no column.
        negligible: an effect that does not count as use.
    """

    def without(chosen: Sequence[Candidate]) -> Confound:
        values = np.concatenate([given, *(candidate.values for candidate in chosen)], axis=1)
        basis = patterns(direction_tests.activations, values, held)
        names = tuple(candidate.name for candidate in chosen)
        tests = direction_tests.run(basis, given=", ".join(names), replay=False)
        explains = not (tests and beyond_random(tests, negligible))
        return Confound(names, max(candidate.correlation for candidate in chosen), tests, explains)

    if not candidates:
        return ()
    together = without(candidates)
    if not together.explains or len(candidates) == 1:
        return (together,)
    alone = tuple(confound for candidate in candidates if (confound := without([candidate])).explains)
    return alone[:MAX_NAMED] or (together,)
