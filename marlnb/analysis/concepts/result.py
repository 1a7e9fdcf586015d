"""The answer of `concept_activation`: TCAV scores beside those of random concepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.data.missing_labels import told_of
from marlnb.analysis.stats.corrections import holm


@dataclass(frozen=True)
class ConceptScore:
    """How one agent's output goes along one concept.

    Attributes:
        score: mean over runs of the share of rows at which the output rises towards the concept; low, high: where 95%
            of the runs lie.
        random, random_low, random_high: the same of random concepts.
        accuracy: of the concept's classifiers in episodes not fitted (balanced); random_accuracy: of the random ones'.
        p_value: two-sided, of the concept's scores against the random ones'; p_holm: corrected for the agents.
        effect, effect_low, effect_high: by how much the output grows to first order from the units' mean without the
            concept to that with it, in the output's units, with its 95% interval over episodes; effect_random: within
            plus or minus it lie 95% of those of shuffled episodes; p_effect: against these.
        follows, follows_low: standard deviation of the output to first order through the units tuned to the concept,
            whatever they follow, and the lower end of its 95% interval; p_follows: of the most strongly tuned of those
            units. p_effect and p_follows are corrected for the agents, too.
    """

    agent: str
    n_rows: int
    n_episodes: int
    score: float
    low: float
    high: float
    random: float
    random_low: float
    random_high: float
    accuracy: float
    random_accuracy: float
    p_value: float
    p_holm: float = 1.0
    effect: float = float("nan")
    effect_low: float = float("nan")
    effect_high: float = float("nan")
    effect_random: float = float("nan")
    p_effect: float = 1.0
    follows: float = float("nan")
    follows_low: float = float("nan")
    p_follows: float = 1.0

    def moves(self, least: float, level: float = 0.05) -> bool:
        """Whether the concept moves the output by more than `least`, in the output's units, beyond chance: by its mean
        effect, or through the units tuned to it. Both are asked, so each at half the level."""
        away = 0.0 if self.effect_low <= 0 <= self.effect_high else min(abs(self.effect_low), abs(self.effect_high))
        by_mean = self.p_effect <= level / 2 and away > least
        return by_mean or (self.p_follows <= level / 2 and self.follows_low > least)


def corrected(scores: Sequence[ConceptScore]) -> tuple[ConceptScore, ...]:
    """The same scores, their p-values corrected for how many agents they are of."""
    by_score, by_effect, by_units = (
        holm(np.array([getattr(score, name) for score in scores])) for name in ("p_value", "p_effect", "p_follows")
    )
    return tuple(
        replace(score, p_holm=float(a), p_effect=float(b), p_follows=float(c))
        for score, a, b, c in zip(scores, by_score, by_effect, by_units)
    )


@dataclass(frozen=True)
class Tcav:
    """Scores of one concept at one site, agent by agent.

    Attributes:
        target: the output, in words; kind: of the concept's direction, filter or pattern.
        warnings: why this must not be trusted; empty where nothing is known against it.
        score_warnings: why the scores alone must not be, whatever the effects say.
        notes: what is not against it but must be known, as rows that had no label.
    """

    site: str
    concept: str
    target: str
    kind: str
    n_runs: int
    scores: tuple[ConceptScore, ...]
    warnings: tuple[str, ...] = ()
    score_warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One line an agent."""
        return pd.DataFrame([asdict(score) for score in self.scores])

    def to_json(self) -> dict[str, Any]:
        noted = {name: list(getattr(self, name)) for name in ("warnings", "score_warnings", "notes")}
        return {**asdict(self), **noted, "scores": [asdict(score) for score in self.scores]}

    def __repr__(self) -> str:
        told = "; ".join(
            f"{s.agent} {s.score:.2f} [{s.low:.2f}, {s.high:.2f}], random {s.random:.2f}, p={s.p_holm:.2g}; "
            f"effect {s.effect:.2g} [{s.effect_low:.2g}, {s.effect_high:.2g}], p={s.p_effect:.2g}"
            for s in self.scores
        )
        flag = told_of((*self.notes, *self._notes))
        return f"Tcav({self.target} towards {self.concept} at {self.site}: {told}{flag})"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p style='color:#b00020'>{note}</p>" for note in self._notes)
        return f"<p>{self!r}</p>{notes}{self.table().to_html(index=False, float_format='%.3g')}"

    @property
    def _notes(self) -> list[str]:
        all_of_it = [f"NOT TO BE TRUSTED: {note}" for note in self.warnings]
        return [*all_of_it, *(f"THE SCORE IS NOT TO BE TRUSTED: {note}" for note in self.score_warnings)]
