"""The answer to a decoding: scores beside their controls, and how far they can be trusted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from marlnb.analysis.linear_models import Kind
from marlnb.errors import AnalysisError


@dataclass(frozen=True)
class DecodingScore:
    """How well one label is read from one site of one agent, at one time step or over all.

    Every score but `control` is of episodes that were not fitted. A score that could not be had is None.

    Attributes:
        t: the time step; None for all steps together.
        score: mean over folds; low, high: its 95% interval.
        chance: of the constant answer.
        shuffled: mean score with the labels of other episodes; shuffled_high: the largest of them.
        p_value: (1 + shuffles at least as good) / (1 + shuffles).
        observation: the same from the agent's raw observation; untrained: from a network of the same architecture
            with random weights.
        control: of random labels, one an episode, with only steps held out: what can be memorised.
    """

    agent: str
    t: int | None
    n_rows: int
    n_episodes: int
    score: float
    low: float
    high: float
    chance: float
    shuffled: float
    shuffled_high: float
    p_value: float
    observation: float
    untrained: float | None
    control: float | None

    @property
    def selectivity(self) -> float | None:
        """score - control (Hewitt and Liang 2019): near 0 where the decoder could have memorised."""
        return None if self.control is None else self.score - self.control


@dataclass(frozen=True)
class Decoding:
    """What a linear decoder reads from a site.

    Attributes:
        metric: balanced accuracy (classification) or R² (regression).
        classes: names of the label's values, or the values themselves; empty for a regression.
        warnings: why this must not be trusted; empty where nothing is known against it.
    """

    site: str
    label: str
    kind: Kind
    classes: tuple[str, ...]
    folds: int
    n_shuffles: int
    scores: tuple[DecodingScore, ...]
    warnings: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        return "balanced accuracy" if self.kind == "classification" else "R²"

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score.agent for score in self.scores))

    def of(self, agent: str | None = None, t: int | None = None) -> DecodingScore:
        """One agent's score, at a time step where they were decoded each by itself.

        Raises:
            AnalysisError: there is none, or more than one; the message names what there is.
        """
        found = [s for s in self.scores if (agent is None or s.agent == agent) and s.t == t]
        if len(found) != 1:
            have = ", ".join(f"(agent={s.agent!r}, t={s.t})" for s in self.scores[:12])
            raise AnalysisError(f"{len(found)} scores for agent={agent!r}, t={t}; there are: {have}")
        return found[0]

    def table(self) -> pd.DataFrame:
        """One line for each agent and time step, controls beside the score."""
        return pd.DataFrame([{**asdict(score), "selectivity": score.selectivity} for score in self.scores])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "metric": self.metric, "scores": [asdict(score) for score in self.scores]}

    def __repr__(self) -> str:
        best = max(self.scores, key=lambda s: s.score)
        when = "" if best.t is None else f" at t={best.t}"
        flag = "".join(f"; NOT TO BE TRUSTED: {note}" for note in self.warnings)
        return (
            f"Decoding({self.label} from {self.site}: {self.metric} {best.score:.2f} [{best.low:.2f}, {best.high:.2f}]"
            f" in {best.agent}{when}, chance {best.chance:.2f}{flag})"
        )

    def _repr_html_(self) -> str:
        notes = "".join(f"<p style='color:#b00020'><b>NOT TO BE TRUSTED:</b> {note}</p>" for note in self.warnings)
        return f"<p>{self!r}</p>{notes}{self.table().to_html(index=False, float_format='%.3g')}"
