"""The result of a decoding: scores next to their controls, corrected p-values, and the fitted decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from math import ceil
from typing import Any, ClassVar, get_args

import numpy as np
import pandas as pd
from markupsafe import Markup

from marlnb.analysis.decoding.linear_decoder import DirectionKind, LinearDecoder
from marlnb.analysis.decoding.score import NEGLIGIBLE_GAIN, Conclusion, DecodingScore, Gain
from marlnb.analysis.results import ALPHA, MIN_EPISODES_FOR_INTERVALS, Result
from marlnb.analysis.stats.corrections import benjamini_hochberg, holm, max_statistic
from marlnb.analysis.stats.linear_models import Kind
from marlnb.display.formatting import count
from marlnb.errors import AnalysisError
from marlnb.models.hooks.directions import Direction

_Decoded = DecodingScore | LinearDecoder
MIN_SHUFFLES = ceil(1 / ALPHA) - 1
"""With fewer, no p-value against the best of all scores (`p_max`) can be ALPHA, however many scores there are."""
TOO_FEW = "too few shuffles"


@dataclass(frozen=True, repr=False)
class Decoding(Result):
    """What a linear decoder reads from one or several sites.

    Attributes:
        site: its name; the names of all if there are several.
        label: the label's name.
        kind: classification or regression.
        classes: names of the label's values, or the values themselves, that occur in any decoder's rows; those of one
            agent are its decoder's. Empty for a regression.
        folds: cross-validation folds.
        n_shuffles: permutations behind each p-value.
        scores: one for each site, agent, offset and time step.
        warnings: reasons not to trust the result.
        decoders: the decoders, fitted to all rows, in the order of `scores`. Not in `table` and `to_json`.
        shuffles: `[score, shuffle]`, scores of shuffled labels. Not in `table` and `to_json`.
        checkpoint: iteration whose rows were read.
        notes: facts that are no reason for distrust, such as rows without a label.
        given: names of what was passed as `given=`; empty where nothing was.
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
    given: str = ""

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
        if self.n_shuffles < self.min_shuffles:
            text += f": none can survive Holm's correction with fewer than {self.min_shuffles} shuffles"
        return text

    @property
    def min_shuffles(self) -> int:
        """The smallest number of shuffles with which the p-value of one of these scores can be ALPHA."""
        return ceil(len(self.scores) / ALPHA) - 1

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
        one_time = t is None and len({c.t for c in candidates}) == 1
        matches = [
            k
            for k, c in enumerate(candidates)
            if agent in (None, c.agent)
            and (one_time or c.t == t)
            and site in (None, c.site)
            and offset in (None, c.offset)
        ]
        if len(matches) != 1:
            description = "agent={!r}, t={}, site={!r}, offset={}".format
            available = ", ".join(f"({description(c.agent, c.t, c.site, c.offset)})" for c in candidates[:12])
            requested = description(agent, t, site, offset)
            raise AnalysisError(f"{len(matches)} scores match {requested}; available: {available}")
        return matches[0]

    def table(self) -> pd.DataFrame:
        """One row for each site, agent, offset and time step, with the score, its controls and the gains over them."""
        frame = pd.DataFrame([_table_row(score) | {"conclusion": self.conclusion_of(score)} for score in self.scores])
        first = ["site", "agent", "offset", "t"]
        return frame[first + [name for name in frame.columns if name not in first]]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "metric": self.metric}

    @property
    def verdict(self) -> str:
        """What the best score says against its controls, and how many scores say the same."""
        ranked = sorted(self.scores, key=lambda score: (-get_args(Conclusion).index(score.conclusion), score.score))
        best, n = ranked[-1], len(self.scores)
        n_same = sum(score.conclusion == best.conclusion for score in self.scores)
        share = "" if n == 1 else f"{n_same} of {n} scores: {self.conclusion_of(best)}; the best: "
        return f"{share}{self._describe(best)}."

    def conclusion_of(self, score: DecodingScore) -> str:
        """As `score.conclusion`; "too few shuffles" if no score of this result could be above chance."""
        return TOO_FEW if score.conclusion == "not above chance" and self.missing_shuffles else score.conclusion

    @property
    def missing_shuffles(self) -> str:
        """How many shuffles a score that is above chance needs; empty if there are enough."""
        if self.n_shuffles >= MIN_SHUFFLES:
            return ""
        return f"p = {ALPHA} needs {MIN_SHUFFLES} shuffles of the labels, got {self.n_shuffles}"

    def _describe(self, score: DecodingScore) -> str:
        at_t = "" if score.t is None else f" at t={score.t}"
        offset = ""
        if score.offset:
            offset = f" {count(abs(score.offset), 'step')} {'later' if score.offset > 0 else 'earlier'}"
        label, source = f"{self.label}{offset}", f"{score.site or self.site} of {score.agent}{at_t}"
        negligible = [gain for gain in score.limits if gain.high <= NEGLIGIBLE_GAIN]
        is_observed = score.is_feed_forward and any(gain.control == "observation" for gain in negligible)
        limit = " (a feed-forward unit cannot hold more than its observation)" if is_observed else ""
        few = f"{score.n_episodes} episodes are too few for a conclusion, which needs {MIN_EPISODES_FOR_INTERVALS}"
        text = {
            "beyond controls": f"is decoded from {source} better than from {self._names(score.gains)}",
            "no more than controls": f"is decoded from {source} no better than from {self._names(negligible)}{limit}",
            "not separable from controls": f"is decoded from {source}, not separable from {self._names(score.limits)}",
            "not above chance": f"is not decoded above chance from {source} by a linear model (no other was tested)",
            TOO_FEW: f"cannot be distinguished from chance at {source}: {self.missing_shuffles}",
            "too few episodes": f"from {source}: {few}",
        }[self.conclusion_of(score)]
        corrected = "corrected p" if len(self.scores) > 1 else "p"
        numbers = (
            f"{self.metric} {score.score:.2f} [{score.low:.2f}, {score.high:.2f}] (n = {score.n_episodes} episodes, "
            f"chance {score.chance:.2f}, {corrected} = {score.p_max:.2g})"
        )
        against = [gain.describe(self.given) for gain in score.gains]
        return "; ".join([f"{label} {text}: {numbers}", *against])

    def _names(self, gains: Sequence[Gain]) -> str:
        if not gains:
            return ""
        names = {"observation": "the observation", "untrained network": "an untrained network", "given": self.given}
        *first, last = [names[gain.control] for gain in gains]
        return f"{', '.join(first)} and {last}" if first else last

    def _repr_table(self) -> pd.DataFrame | None:
        return self._html_table() if len(self.scores) > 1 else None

    def _html_table(self) -> pd.DataFrame:
        frame = self.table()[["site", "agent", "offset", "t", "score", "observation", "untrained", "conclusion"]]
        constant = [name for name in ("site", "agent", "offset", "t") if frame[name].nunique(dropna=False) == 1]
        return frame.drop(columns=constant).sort_values("score", ascending=False)

    def _repr_html_(self) -> str:
        return super()._repr_html_() + Markup("<p>{}</p>").format(self.resolution)


def _table_row(score: DecodingScore) -> dict[str, Any]:
    """The score's own fields, its controls, and for each control the gain over it with interval and p-value."""
    own = {field.name: getattr(score, field.name) for field in fields(score) if field.name != "gains"}
    derived = {name: getattr(score, name) for name in ("observation", "untrained", "selectivity")}
    gains = {
        f"{name}_over_{gain.control.split()[0]}": getattr(gain, name)
        for gain in score.gains
        for name in ("gain", "low", "high", "p_holm")
    }
    return {**own, **derived, **gains, "survives": score.survives()}


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
    gains = iter(holm(np.array([gain.p_value for score in scores for gain in score.gains])))
    shuffles = np.concatenate([decoding.shuffles for decoding in decodings])
    p_max = max_statistic(np.array([score.score for score in scores]), shuffles)
    corrected = [
        replace(
            score,
            p_holm=float(a),
            p_fdr=float(b),
            p_max=float(c),
            gains=tuple(replace(gain, p_holm=float(next(gains))) for gain in score.gains),
        )
        for score, a, b, c in zip(scores, holm(p), benjamini_hochberg(p), p_max)
    ]
    remaining = iter(corrected)
    return [replace(decoding, scores=tuple(islice(remaining, len(decoding.scores)))) for decoding in decodings]
