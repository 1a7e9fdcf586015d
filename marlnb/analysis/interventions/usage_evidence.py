"""The evidence for the use of directions: their effects, next to random ones, without what is given, and confounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from marlnb.analysis.data.given import Given, GivenColumns, given_columns
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.interventions.confounds import Correlates, concept_label, confound_tests, correlates
from marlnb.analysis.interventions.direction_tests import DirectionTests
from marlnb.analysis.interventions.usage_result import Confound, UsageTest, beyond_random, of_given
from marlnb.analysis.stats.given_patterns import DETERMINED, explained_share, half_agreement, patterns
from marlnb.errors import AnalysisError


@dataclass(frozen=True)
class CountedRows:
    """The rows of episodes without edits over which effects are averaged, as one agent sees them.

    Attributes:
        source: the episodes.
        all_rows: every row.
        counted: `[row]` bool.
        index: the agent's, in its group.
    """

    source: RowSource
    all_rows: Rows
    counted: np.ndarray
    index: int

    @property
    def agent(self) -> str:
        return self.source.agents[self.index]

    def values(self, columns: GivenColumns) -> np.ndarray:
        """`[counted row, column]`."""
        return columns.values[self.counted, self.index]

    def known(self, columns: GivenColumns) -> np.ndarray:
        """`[counted row]` bool."""
        return columns.known[self.counted, self.index]

    def concept(self, name: str) -> GivenColumns | None:
        """The label that a direction stands for; None where the episodes lack it, or it is unknown at some rows."""
        columns = concept_label(self.source, self.all_rows, name)
        return columns if columns is not None and self.known(columns).all() else None

    def given(self, given: Given | None) -> GivenColumns | None:
        """What is given.

        Raises:
            AnalysisError: an unknown name, or a value that is unknown at some of the rows.
        """
        columns = given_columns(self.source, self.all_rows, given)
        if columns is not None and not self.known(columns).all():
            n_unknown, n = int((~self.known(columns)).sum()), int(self.counted.sum())
            raise AnalysisError(
                f"given={columns} is unknown at {n_unknown} of {n} steps of {self.agent}: choose others with rows="
            )
        return columns


@dataclass(frozen=True)
class UsageEvidence:
    """Effects of the directions of one concept, and what else could explain them.

    Attributes:
        direction_tests: measures effects of the directions, whole or without what they carry of other quantities.
        rows: where.
        concept: the label that the directions stand for; None where the episodes lack it.
        given: what the effect must not be explained by; None: nothing.
        negligible: an effect that does not count as use.
    """

    direction_tests: DirectionTests
    rows: CountedRows
    concept: GivenColumns | None
    given: GivenColumns | None
    negligible: float

    @property
    def given_names(self) -> tuple[str, ...]:
        return () if self.given is None else self.given.names

    @cached_property
    def tests(self) -> tuple[UsageTest, ...]:
        """Of the whole directions, then of what is left of them without what is given."""
        return self._tests_of_whole + self._tests_without_given

    @cached_property
    def agreement(self) -> float:
        """How far two halves of the episodes agree on what is left without what is given."""
        if not self._something_is_left:
            return 1.0
        tests = self.direction_tests
        return half_agreement(tests.vectors, tests.activations, self._given_values, self._held)

    @cached_property
    def correlates(self) -> Correlates:
        """What correlates with the projection onto the directions, where the concept stays the same."""
        if self.concept is None:
            return Correlates((), 0, ())
        projection = self.direction_tests.activations @ self.direction_tests.vectors.T
        rows = self.rows
        return correlates(
            rows.source, rows.all_rows, rows.counted, rows.index, projection, self.concept, excluded=self.given_names
        )

    @cached_property
    def confounds(self) -> tuple[Confound, ...]:
        """Tests without what the directions carry of the correlates; none where there is no effect to explain."""
        if self._held is None or not beyond_random(of_given(self.tests, False), self.negligible):
            return ()
        return confound_tests(
            self.direction_tests, self.correlates.candidates, self._held, self._given_values, self.negligible
        )

    @cached_property
    def _tests_of_whole(self) -> tuple[UsageTest, ...]:
        return self.direction_tests.run()

    @cached_property
    def _tests_without_given(self) -> tuple[UsageTest, ...]:
        if not self._something_is_left:
            return ()
        basis = patterns(self.direction_tests.activations, self._given_values, self._held)
        return self.direction_tests.run(basis, given=str(self.given))

    @cached_property
    def _something_is_left(self) -> bool:
        """Whether something is given, and it is not the concept itself."""
        if self.given is None:
            return False
        return self._held is None or explained_share(self._held, self._given_values) < DETERMINED

    @cached_property
    def _held(self) -> np.ndarray | None:
        """`[counted row, column]`, the concept's values."""
        return None if self.concept is None else self.rows.values(self.concept)

    @cached_property
    def _given_values(self) -> np.ndarray:
        """`[counted row, column]`, without a column where nothing is given."""
        return np.empty((int(self.rows.counted.sum()), 0)) if self.given is None else self.rows.values(self.given)
