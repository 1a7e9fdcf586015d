"""How well a label is decoded from a site: a score, its controls, and what it says against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marlnb.analysis.results import ALPHA, MIN_EPISODES_FOR_INTERVALS
from marlnb.analysis.stats.linear_models import FoldScores
from marlnb.display.array_summary import FieldsSummary
from marlnb.errors import AnalysisError, unknown

Correction = Literal["holm", "fdr", "max"]
Control = Literal["observation", "untrained network", "given"]
Conclusion = Literal[
    "beyond controls", "no more than controls", "not separable from controls", "not above chance", "too few episodes"
]
NEGLIGIBLE_GAIN = 0.05
"""A site whose score exceeds a control's by at most this much (the upper end of the interval) holds no more than it."""


@dataclass(frozen=True, repr=False)
class Gain(FieldsSummary):
    """How much better a label is decoded from a site than from a control, on the same folds.

    Attributes:
        control: observation: the agent's raw observation; untrained network: the same architecture with random weights;
            given: what was passed as `given=`, compared with the site's units and what is given together.
        score: of the control alone, mean over folds.
        gain: the site's score minus the control's, mean over folds.
        low: lower end of its 95% interval.
        high: upper end of its 95% interval.
        p_value: two-sided, of the corrected t test over folds (Nadeau and Bengio 2003).
        p_holm: corrected by Holm's method for all gains of the result.
    """

    control: Control
    score: float
    gain: float
    low: float
    high: float
    p_value: float
    p_holm: float = 1.0

    @staticmethod
    def over(control: Control, of_control: FoldScores, of_site: FoldScores) -> Gain:
        difference = of_site - of_control
        return Gain(control, of_control.mean, difference.mean, *difference.interval(), difference.p_value)

    @property
    def is_positive(self) -> bool:
        """Whether the site is shown to exceed the control, and not by a negligible gain."""
        return self.low > 0 and self.high > NEGLIGIBLE_GAIN and self.p_holm <= ALPHA

    def describe(self, given: str) -> str:
        """The control's score and the gain over it, in words; `given` names what was passed as `given=`."""
        control = f"{given} alone" if self.control == "given" else self.control
        interval = f"[{self.low:+.2f}, {self.high:+.2f}]"
        return f"{control} {self.score:.2f} (difference {self.gain:+.2f} {interval}, p = {self.p_holm:.2g})"


@dataclass(frozen=True, repr=False)
class DecodingScore(FieldsSummary):
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
        control: score of random labels, one per episode, with only time steps held out: what can be memorised.
        site: the decoded site.
        offset: steps from the activations to the label; negative for earlier labels.
        p_holm: the p-value corrected for all scores of the result by Holm's method.
        p_fdr: the same by Benjamini and Hochberg's method.
        p_max: the same against the best of all scores under each shuffle (Westfall and Young 1993).
        gains: over the observation, over an untrained network if there is one, and over what is given.
        is_feed_forward: the units are a function of the agent's observation at the same step, so they cannot hold more.
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
    control: float | None
    site: str = ""
    offset: int = 0
    p_holm: float = 1.0
    p_fdr: float = 1.0
    p_max: float = 1.0
    gains: tuple[Gain, ...] = ()
    is_feed_forward: bool = False

    @property
    def observation(self) -> float:
        """Score from the agent's raw observation."""
        return next(gain.score for gain in self.gains if gain.control == "observation")

    @property
    def untrained(self) -> float | None:
        """Score from a network of the same architecture with random weights; None where it cannot be evaluated."""
        return next((gain.score for gain in self.gains if gain.control == "untrained network"), None)

    @property
    def limits(self) -> tuple[Gain, ...]:
        """The controls that the site is not shown to exceed."""
        return tuple(gain for gain in self.gains if not gain.is_positive)

    @property
    def conclusion(self) -> Conclusion:
        """What the score says against its controls.

        beyond controls: above shuffled labels, and above every control after Holm's correction. no more than controls:
        the site exceeds some control by at most `NEGLIGIBLE_GAIN`. not separable from controls: neither is shown.
        """
        if self.n_episodes < MIN_EPISODES_FOR_INTERVALS:
            return "too few episodes"
        if not self.survives():
            return "not above chance"
        if not self.limits:
            return "beyond controls"
        if any(gain.high <= NEGLIGIBLE_GAIN for gain in self.limits):
            return "no more than controls"
        return "not separable from controls"

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
