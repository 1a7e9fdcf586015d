"""The result of a decoding: scores next to their controls, corrected p-values, and the fitted decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from marlnb.analysis.decoding.linear_decoder import DirectionKind, LinearDecoder
from marlnb.analysis.results import ALPHA, Result
from marlnb.analysis.stats.corrections import benjamini_hochberg, holm, max_statistic
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.directions import Direction

Correction = Literal["holm", "fdr", "max"]


@dataclass(frozen=True)
class DecodingScore:
    """How well one label is decoded from one site of one agent, at one time step or over all.

    All scores but `control` are of episodes that the models were not fitted to. A score that is not available is None.

    Attributes:
        agent: the agent's name.
        t: time step; None for all steps together.
        n_rows: rows with a label.
        n_episodes: episodes of those rows.
        score: mean over folds.
        low: lower end of its 95% interval.
        high: upper end of its 95% interval.
        chance: score of the best constant answer.
        shuffled: mean score with the labels of other episodes.
        shuffled_high: the largest of these scores.
        p_value: (1 + shuffles that score at least as well) / (1 + shuffles).
        observation: score from the agent's raw observation.
        untrained: score from a network of the same architecture with random weights.
        control: score of random labels, one per episode, with only time steps held out: what can be memorised.
        site: the decoded site.
        offset: steps from the activations to the label; negative for earlier labels.
        p_holm: the p-value corrected for all scores of the result by Holm's method.
        p_fdr: the same by Benjamini and Hochberg's method.
        p_max: the same against the best of all scores under each shuffle (Westfall and Young 1993).
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
        """`score - control`: near 0 if the decoder could have memorised the episodes.

        Source: Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks, section 2
            (arXiv:1909.03368).
        """
        return None if self.control is None else self.score - self.control

    def survives(self, correction: Correction = "max", alpha: float = ALPHA) -> bool:
        """Whether the score is above chance and, corrected for all scores of the result, above shuffled labels.

        `max` and `holm` both bound the probability of a single false positive; `max` needs no more shuffles for more
        scores.
        """
        corrected = {"holm": self.p_holm, "fdr": self.p_fdr, "max": self.p_max}
        if correction not in corrected:
            raise AnalysisError(unknown("correction", correction, corrected))
        return self.score > self.chance and corrected[correction] <= alpha


_Decoded = DecodingScore | LinearDecoder


@dataclass(frozen=True)
class Decoding(Result):
    """What a linear decoder reads from one or several sites.

    Attributes:
        site: its name; the names of all if there are several.
        label: the label's name.
        kind: classification or regression.
        classes: names of the label's values, or the values themselves; empty for a regression.
        folds: cross-validation folds.
        n_shuffles: permutations behind each p-value.
        scores: one for each site, agent, offset and time step.
        warnings: reasons not to trust the result.
        decoders: the decoders, fitted to all rows, in the order of `scores`. Not in `table` and `to_json`.
        shuffles: `[score, shuffle]`, scores of shuffled labels. Not in `table` and `to_json`.
        checkpoint: iteration whose rows were read.
        notes: facts that are no reason for distrust, such as rows without a label.
    """

    NOT_IN_JSON: ClassVar[tuple[str, ...]] = ("decoders", "shuffles")

    site: str
    label: str
    kind: Kind
    classes: tuple[str, ...]
    folds: int
    n_shuffles: int
    scores: tuple[DecodingScore, ...]
    warnings: tuple[str, ...] = ()
    decoders: tuple[LinearDecoder, ...] = field(default=(), repr=False, compare=False)
    shuffles: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)), repr=False, compare=False)
    checkpoint: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """balanced accuracy (classification) or R² (regression)."""
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
        """In words, how small a p-value the number of shuffles allows."""
        n, smallest = len(self.scores), 1 / (1 + self.n_shuffles)
        text = f"{n} {'score' if n == 1 else 'scores'}, p-values no smaller than {smallest:.2g}"
        if smallest * n > ALPHA:
            text += f": none can survive Holm's correction with fewer than {ceil(n / ALPHA) - 1} shuffles"
        return text

    def of(
        self, agent: str | None = None, t: int | None = None, site: str | None = None, offset: int | None = None
    ) -> DecodingScore:
        """The score of an agent, a time step if each was decoded by itself, a site and an offset.

        Raises:
            AnalysisError: there is none or more than one; the message lists those available.
        """
        return self.scores[self._index(self.scores, agent, t, site, offset)]

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
        """The direction of the label in the site's activations, to steer along or to erase.

        Args:
            value: for classes: one against all others, or a pair (one, other); None: the second of two classes.
            kind: pattern: how the units move with the label, to steer along and erase; filter: the decoder's own
                weights, what it measures (see `marlnb.analysis.decoding.linear_decoder`).
        Raises:
            AnalysisError: no decoder or class matches, or more than one.
        """
        return self.decoders[self._index(self.decoders, agent, t, site, offset)].direction(value, kind)

    def directions(
        self,
        agent: str | None = None,
        *,
        kind: DirectionKind = "pattern",
        site: str | None = None,
        t: int | None = None,
        offset: int | None = None,
    ) -> tuple[Direction, ...]:
        """All directions of the label: one for a quantity or two classes, otherwise one for each class.

        Once all of them are erased, no linear decoder reads the label.
        """
        decoder = self.decoders[self._index(self.decoders, agent, t, site, offset)]
        values: Sequence[str | None] = decoder.classes if len(decoder.classes) > 2 else (None,)
        return tuple(decoder.direction(value, kind) for value in values)

    def _index(
        self, candidates: Sequence[_Decoded], agent: str | None, t: int | None, site: str | None, offset: int | None
    ) -> int:
        matches = [
            k
            for k, c in enumerate(candidates)
            if agent in (None, c.agent) and c.t == t and site in (None, c.site) and offset in (None, c.offset)
        ]
        if len(matches) != 1:
            description = "agent={!r}, t={}, site={!r}, offset={}".format
            available = ", ".join(f"({description(c.agent, c.t, c.site, c.offset)})" for c in candidates[:12])
            requested = description(agent, t, site, offset)
            raise AnalysisError(f"{len(matches)} scores match {requested}; available: {available}")
        return matches[0]

    def table(self) -> pd.DataFrame:
        """One row for each site, agent, offset and time step, with the score and its controls."""
        rows = [{**asdict(s), "selectivity": s.selectivity, "survives": s.survives()} for s in self.scores]
        frame = pd.DataFrame(rows)
        first = ["site", "agent", "offset", "t"]
        return frame[first + [name for name in frame.columns if name not in first]]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "metric": self.metric}

    def __repr__(self) -> str:
        best = max(self.scores, key=lambda s: s.score)
        at_t = "" if best.t is None else f" at t={best.t}"
        offset = f" ({best.offset:+d} steps)" if best.offset else ""
        n, n_surviving = len(self.scores), sum(score.survives() for score in self.scores)
        surviving = f"; {n_surviving} of {n} scores survive correction" if n > 1 else ""
        return (
            f"Decoding({self.label}{offset} from {best.site or self.site}: {self.metric} {best.score:.2f} "
            f"[{best.low:.2f}, {best.high:.2f}] in {best.agent}{at_t}, chance {best.chance:.2f}{surviving}"
            f"{self.remarks})"
        )

    def _repr_html_(self) -> str:
        return f"{super()._repr_html_()}<p>{self.resolution}</p>"


def corrected_together(decodings: Sequence[Decoding]) -> list[Decoding]:
    """The same results with p-values corrected for all the scores of all of them.

    For problems decoded in separate calls: other labels, other checkpoints. `p_max` needs equally many shuffles in
    each result, and is an approximation if they were not shuffled alike (other episodes).

    Raises:
        AnalysisError: the results have different numbers of shuffles.
    """
    n_shuffles = {decoding.n_shuffles for decoding in decodings}
    if len(n_shuffles) > 1:
        raise AnalysisError(f"results with {sorted(n_shuffles)} shuffles cannot be corrected together")
    scores = [score for decoding in decodings for score in decoding.scores]
    p = np.array([score.p_value for score in scores])
    shuffles = np.concatenate([decoding.shuffles for decoding in decodings])
    p_max = max_statistic(np.array([score.score for score in scores]), shuffles)
    corrected = [
        replace(score, p_holm=float(a), p_fdr=float(b), p_max=float(c))
        for score, a, b, c in zip(scores, holm(p), benjamini_hochberg(p), p_max)
    ]
    remaining = iter(corrected)
    return [replace(decoding, scores=tuple(islice(remaining, len(decoding.scores)))) for decoding in decodings]
