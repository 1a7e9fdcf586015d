"""The answer to a decoding: scores beside their controls, and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any, Literal

import numpy as np
import pandas as pd

from marlnb.analysis.data.missing_labels import told_of
from marlnb.analysis.decoding.linear_decoder import DirectionKind, Reading
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.analysis.stats.corrections import benjamini_hochberg, holm, max_statistic
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.directions import Direction

Correction = Literal["holm", "fdr", "max"]
LEVEL = 0.05


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
        site: where it was read; offset: how many steps later the label is (earlier, if negative).
        p_holm, p_fdr, p_max: the p-value corrected for all scores of the result: by Holm, by Benjamini and Hochberg,
            and against the best of all scores under each shuffle (Westfall and Young).
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
    site: str = ""
    offset: int = 0
    p_holm: float = 1.0
    p_fdr: float = 1.0
    p_max: float = 1.0

    @property
    def selectivity(self) -> float | None:
        """score - control (Hewitt and Liang 2019): near 0 where the decoder could have memorised."""
        return None if self.control is None else self.score - self.control

    def survives(self, correction: Correction = "max", level: float = LEVEL) -> bool:
        """Whether it is above chance and above what shuffled labels give, told among all scores of the result.

        `max` and `holm` both bound the chance of a single false one; `max` does not need more shuffles for more scores.
        """
        corrected = {"holm": self.p_holm, "fdr": self.p_fdr, "max": self.p_max}
        if correction not in corrected:
            raise AnalysisError(unknown("correction", correction, corrected))
        return self.score > self.chance and corrected[correction] <= level


@dataclass(frozen=True)
class Decoding:
    """What a linear decoder reads from one or several sites.

    Attributes:
        site: its name; of several, all their names.
        metric: balanced accuracy (classification) or R² (regression).
        classes: names of the label's values, or the values themselves; empty for a regression.
        scores: one for each site, agent, offset and time step.
        warnings: why this must not be trusted; empty where nothing is known against it.
        readings: the decoders themselves, fitted to all rows; shuffles: `[score, shuffle]`, the scores of shuffled
            labels; neither is part of `table` and `to_json`.
        checkpoint: the iteration whose rows were read.
        notes: what is not against it but must be known, as rows that had no label.
    """

    site: str
    label: str
    kind: Kind
    classes: tuple[str, ...]
    folds: int
    n_shuffles: int
    scores: tuple[DecodingScore, ...]
    warnings: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = field(default=(), repr=False, compare=False)
    shuffles: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)), repr=False, compare=False)
    checkpoint: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        return "balanced accuracy" if self.kind == "classification" else "R²"

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score.agent for score in self.scores))

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score.site for score in self.scores))

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(score.offset for score in self.scores))

    @property
    def resolution(self) -> str:
        """What the number of shuffles allows to tell, in words."""
        n, least = len(self.scores), 1 / (1 + self.n_shuffles)
        told = f"{n} {'score' if n == 1 else 'scores'}, p-values no smaller than {least:.2g}"
        needed = ceil(n / LEVEL) - 1
        if least * n > LEVEL:
            told += f": none can survive Holm's correction with fewer than {needed} shuffles"
        return told

    def of(
        self, agent: str | None = None, t: int | None = None, site: str | None = None, offset: int | None = None
    ) -> DecodingScore:
        """One score: of an agent, a time step where each was decoded by itself, a site and an offset.

        Raises:
            AnalysisError: there is none, or more than one; the message names what there is.
        """
        return self.scores[self._place(self.scores, agent, t, site, offset)]

    def direction(
        self,
        agent: str | None = None,
        value: str | int | tuple[str | int, str | int] | None = None,
        *,
        kind: DirectionKind = "pattern",
        site: str | None = None,
        t: int | None = None,
        offset: int | None = None,
    ) -> Direction:
        """Where in the site's space the label lies: to steer along, or to be erased.

        Args:
            value: of classes: one against all others, or a pair (one, other); of two classes, None is the second.
            kind: pattern: how the units move with the label, to be steered along and erased; filter: the decoder's
                own weights, what it measures (see `marlnb.analysis.decoding.linear_decoder`).
        Raises:
            AnalysisError: there is no such reading or value, or more than one fits.
        """
        return self.readings[self._place(self.readings, agent, t, site, offset)].direction(value, kind)

    def directions(
        self,
        agent: str | None = None,
        *,
        kind: DirectionKind = "pattern",
        site: str | None = None,
        t: int | None = None,
        offset: int | None = None,
    ) -> tuple[Direction, ...]:
        """All that the label takes up: one direction for a quantity or two classes, else one for each class.

        Erasing all of them leaves nothing that a linear decoder reads.
        """
        reading = self.readings[self._place(self.readings, agent, t, site, offset)]
        values: Sequence[str | None] = reading.classes if len(reading.classes) > 2 else (None,)
        return tuple(reading.direction(value, kind) for value in values)

    def _place(
        self,
        among: Sequence[DecodingScore] | Sequence[Reading],
        agent: str | None,
        t: int | None,
        site: str | None,
        offset: int | None,
    ) -> int:
        here: list[DecodingScore | Reading] = list(among)
        found = [
            k
            for k, s in enumerate(here)
            if agent in (None, s.agent) and s.t == t and site in (None, s.site) and offset in (None, s.offset)
        ]
        if len(found) != 1:
            have = ", ".join(f"(agent={s.agent!r}, t={s.t}, site={s.site!r}, offset={s.offset})" for s in here[:12])
            asked = f"agent={agent!r}, t={t}, site={site!r}, offset={offset}"
            raise AnalysisError(f"{len(found)} scores for {asked}; there are: {have}")
        return found[0]

    def table(self) -> pd.DataFrame:
        """One line for each site, agent, offset and time step, controls beside the score."""
        frame = pd.DataFrame(
            [{**asdict(s), "selectivity": s.selectivity, "survives": s.survives()} for s in self.scores]
        )
        first = ["site", "agent", "offset", "t"]
        return frame[first + [name for name in frame.columns if name not in first]]

    def to_json(self) -> dict[str, Any]:
        told = ("site", "label", "kind", "folds", "n_shuffles", "metric", "checkpoint")
        plain = {name: getattr(self, name) for name in told}
        lists = {"classes": list(self.classes), "warnings": list(self.warnings), "notes": list(self.notes)}
        return {**plain, **lists, "scores": [asdict(score) for score in self.scores]}

    def __repr__(self) -> str:
        best = max(self.scores, key=lambda s: s.score)
        when = "" if best.t is None else f" at t={best.t}"
        later = f" ({best.offset:+d} steps)" if best.offset else ""
        flag = told_of(self.notes) + doubts(self.warnings)
        survivors = sum(score.survives() for score in self.scores)
        n = len(self.scores)
        several = f"; {survivors} of {n} scores survive correction" if n > 1 else ""
        return (
            f"Decoding({self.label}{later} from {best.site or self.site}: {self.metric} {best.score:.2f} "
            f"[{best.low:.2f}, {best.high:.2f}] in {best.agent}{when}, chance {best.chance:.2f}{several}{flag})"
        )

    def _repr_html_(self) -> str:
        return f"{shown_as_html(repr(self), self.warnings, self.table())}<p>{self.resolution}</p>"


def corrected_together(decodings: Sequence[Decoding]) -> list[Decoding]:
    """The same results, their p-values corrected for all the scores of all of them.

    For questions asked one by one: other labels, other checkpoints. `p_max` needs equally many shuffles in each; where
    they were not shuffled alike (other episodes), it is an approximation.

    Raises:
        AnalysisError: the results have different numbers of shuffles.
    """
    numbers = {decoding.n_shuffles for decoding in decodings}
    if len(numbers) > 1:
        raise AnalysisError(f"results with {sorted(numbers)} shuffles cannot be corrected together")
    scores = [score for decoding in decodings for score in decoding.scores]
    p = np.array([score.p_value for score in scores])
    found = np.array([score.score for score in scores])
    largest = max_statistic(found, np.concatenate([decoding.shuffles for decoding in decodings]))
    corrected = [
        replace(score, p_holm=float(a), p_fdr=float(b), p_max=float(c))
        for score, a, b, c in zip(scores, holm(p), benjamini_hochberg(p), largest)
    ]
    places = np.cumsum([0, *(len(decoding.scores) for decoding in decodings)])
    return [
        replace(decoding, scores=tuple(corrected[start:stop]))
        for decoding, start, stop in zip(decodings, places, places[1:])
    ]
