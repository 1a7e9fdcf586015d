"""The answer of `concept_activation`: TCAV scores beside those of random concepts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class ConceptScore:
    """How one agent's output goes along one concept.

    Attributes:
        score: mean over runs of the share of rows at which the output rises towards the concept; low, high: where 95%
            of the runs lie.
        random, random_low, random_high: the same of random concepts.
        accuracy: of the concept's classifiers in episodes not fitted (balanced); random_accuracy: of the random ones'.
        p_value: two-sided, of the concept's scores against the random ones'; p_holm: corrected for the agents.
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

    def corrected(self, p_holm: float) -> ConceptScore:
        return replace(self, p_holm=p_holm)


@dataclass(frozen=True)
class Tcav:
    """Scores of one concept at one site, agent by agent.

    Attributes:
        target: the output, in words; kind: of the concept's direction, filter or pattern.
        warnings: why this must not be trusted; empty where nothing is known against it.
    """

    site: str
    concept: str
    target: str
    kind: str
    n_runs: int
    scores: tuple[ConceptScore, ...]
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One line an agent."""
        return pd.DataFrame([asdict(score) for score in self.scores])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings), "scores": [asdict(score) for score in self.scores]}

    def __repr__(self) -> str:
        told = "; ".join(
            f"{s.agent} {s.score:.2f} [{s.low:.2f}, {s.high:.2f}], random {s.random:.2f}, p={s.p_holm:.2g}"
            for s in self.scores
        )
        flag = "".join(f"; NOT TO BE TRUSTED: {note}" for note in self.warnings)
        return f"Tcav({self.target} towards {self.concept} at {self.site}: {told}{flag})"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p style='color:#b00020'><b>NOT TO BE TRUSTED:</b> {note}</p>" for note in self.warnings)
        return f"<p>{self!r}</p>{notes}{self.table().to_html(index=False, float_format='%.3g')}"
