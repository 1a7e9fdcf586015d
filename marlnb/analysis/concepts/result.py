"""The result of a concept activation analysis: TCAV scores next to those of random concepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result
from marlnb.analysis.stats.corrections import holm


@dataclass(frozen=True)
class ConceptScore:
    """How one agent's output depends on one concept.

    Attributes:
        agent: the agent's name.
        n_rows: rows behind the score.
        n_episodes: episodes of the classifiers.
        score: share of rows at which the output rises towards the concept, mean over runs.
        low: 2.5% quantile of the runs' scores.
        high: 97.5% quantile of the runs' scores.
        random: mean score of random concepts.
        random_low: 2.5% quantile of their scores.
        random_high: 97.5% quantile of their scores.
        accuracy: balanced accuracy of the concept's classifiers in episodes that they were not fitted to.
        random_accuracy: the same of the random concepts' classifiers.
        p_value: two-sided, of the score in all episodes against those of shuffled episodes.
        p_holm: the p-value corrected for the number of agents.
        effect: first-order growth of the output from the units' mean without the concept to that with it, in the
            output's units.
        effect_low: lower end of its 95% bootstrap interval over episodes.
        effect_high: upper end of that interval.
        effect_random: 95% of the effects with shuffled episodes are within plus or minus this value.
        p_effect: against these effects, corrected for the number of agents.
        follows: first-order standard deviation of the output through the units that are tuned to the concept, whatever
            else they follow.
        follows_low: lower end of its 95% interval.
        p_follows: of the most strongly tuned of those units, corrected for the number of agents. It tests whether a
            unit is tuned to the concept, not whether the output moves.
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

    def moves(self, min_effect: float, alpha: float = ALPHA) -> bool:
        """Whether the concept moves the output beyond chance by more than `min_effect`, in the output's units.

        Either by its mean effect or through the units tuned to it. Both are tested, so each at half of alpha. The
        second needs `min_effect` above 0, since any standard deviation is above 0.
        """
        crosses_zero = self.effect_low <= 0 <= self.effect_high
        smallest_effect = 0.0 if crosses_zero else min(abs(self.effect_low), abs(self.effect_high))
        by_mean = self.p_effect <= alpha / 2 and smallest_effect > min_effect
        return by_mean or (self.p_follows <= alpha / 2 and self.follows_low > min_effect > 0)


def corrected_for_agents(scores: Sequence[ConceptScore]) -> tuple[ConceptScore, ...]:
    """The same scores with p-values corrected for the number of agents (Holm)."""
    corrected = [holm(np.array(p)).tolist() for p in zip(*((s.p_value, s.p_effect, s.p_follows) for s in scores))]
    return tuple(
        replace(score, p_holm=p_holm, p_effect=p_effect, p_follows=p_follows)
        for score, p_holm, p_effect, p_follows in zip(scores, *corrected)
    )


def _describe(score: ConceptScore) -> str:
    """One agent's score against random concepts, and its effect and the units tuned to it against shuffled episodes."""
    rises = "rises" if score.score > score.random else "falls"
    differs = score.p_holm <= ALPHA
    text = (
        f"for {score.agent} it {rises} more often than towards random concepts"
        if differs
        else (f"for {score.agent} it is not shown to rise or fall more often than towards random concepts")
    )
    text += (
        f" (score {score.score:.2f} [{score.low:.2f}, {score.high:.2f}], random {score.random:.2f}, corrected "
        f"p = {score.p_holm:.2g}, n = {score.n_episodes} episodes)"
    )
    if score.effect != score.effect:
        return text
    shown = "" if score.p_effect <= ALPHA else ", not beyond shuffled episodes"
    text += (
        f", its mean effect is {score.effect:+.2g} [{score.effect_low:.2g}, {score.effect_high:.2g}] (corrected "
        f"p = {score.p_effect:.2g}{shown})"
    )
    if score.p_follows > ALPHA:
        return f"{text}, and no unit is shown to be tuned to the concept (corrected p = {score.p_follows:.2g})"
    return (
        f"{text}, and units are tuned to the concept (corrected p = {score.p_follows:.2g}), by which the output has a "
        f"standard deviation of {score.follows:.2g} (95% interval from {score.follows_low:.2g})"
    )


@dataclass(frozen=True, repr=False)
class Tcav(Result):
    """Scores of one concept at one site, by agent.

    Attributes:
        site: the units' site.
        concept: the concept, in words.
        target: the output, in words.
        kind: of the concept's direction, filter or pattern.
        n_runs: classifiers of the concept, and of random concepts.
        scores: one for each agent.
        warnings: reasons not to trust the result.
        score_warnings: reasons not to trust `score`, which leave the effects valid.
        notes: facts that are no reason for distrust, such as rows without a label.
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
        """One row for each agent."""
        return pd.DataFrame([asdict(score) for score in self.scores])

    @property
    def verdict(self) -> str:
        """For each agent, the score, the mean effect and the units tuned to the concept, each with its own p-value."""
        heading = f"{self.target} towards {self.concept} at {self.site}"
        return f"{heading}: {'; '.join(map(_describe, self.scores))}."

    def _repr_table(self) -> pd.DataFrame | None:
        names = ["agent", "score", "random", "p_holm", "effect", "p_effect", "follows", "p_follows"]
        return self.table()[names] if len(self.scores) > 1 else None

    def _labelled_warnings(self) -> Iterator[tuple[str, str]]:
        yield from super()._labelled_warnings()
        for warning in self.score_warnings:
            yield "THE SCORE IS NOT TO BE TRUSTED", warning
