"""The result of testing whether an agent uses a decoded direction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd

from marlnb.analysis.results import Result
from marlnb.errors import AnalysisError, unknown

Conclusion = Literal["used", "decodable but not used", "not shown to be used"]


@dataclass(frozen=True)
class UsageTest:
    """What one edit along the direction does to the agent's action distributions, next to random directions.

    Attributes:
        edit: erase, or steer (forwards and backwards, averaged).
        effect: how far the action distributions move on the same states, averaged over steps and then episodes, in
            `Usage.units`.
        low: lower end of its 95% t interval.
        high: upper end of its 95% t interval.
        random_mean: mean effect of random directions of the same length.
        random_high: 95% quantile of their effects.
        p_value: (1 + random directions with at least the effect) / (1 + random directions).
        matched_mean: mean effect of random directions with as much of the activations' variance along them; None if
            there are no such directions.
        p_matched: p-value against these. Where most of what varies is used, they change actions too. A large value
            means that the direction matters no more to the agent than others that vary as much, not that it does not
            matter.
        return_change: mean paired change of the agent's return (for steering: forwards).
        return_low: lower end of its 95% t interval.
        return_high: upper end of its 95% t interval.
        random: effects of the random directions.
    """

    edit: Literal["erase", "steer"]
    effect: float
    low: float
    high: float
    random_mean: float
    random_high: float
    p_value: float
    matched_mean: float | None
    p_matched: float | None
    return_change: float
    return_low: float
    return_high: float
    random: tuple[float, ...] = ()


@dataclass(frozen=True)
class Usage(Result):
    """Whether an agent uses a direction of its activations.

    Attributes:
        concept: what the direction stands for.
        site: the direction's site.
        agent: the agent's name.
        n_directions: how many directions were edited together.
        n_random_directions: random directions behind each p-value.
        episodes: how many were played.
        strength: of the steering, in standard deviations.
        units: of the effects.
        negligible: an effect that does not count as use.
        decodable: whether the decoding that the direction came from read the label better than chance; None for a
            direction without a decoding.
        conclusion: used: an edit moves the actions more than random directions do (Holm over the two edits), and the
            lower end of its interval is above `negligible`. decodable but not used: the label is decodable, and the
            upper ends of both intervals are at most `negligible`. not shown to be used: otherwise; this is no proof
            that the direction is not used.
        tests: one for each edit.
        settings: the options, enough to repeat the test.
        warnings: reasons not to trust the result.
    """

    concept: str
    site: str
    agent: str
    n_directions: int
    n_random_directions: int
    episodes: int
    strength: float
    units: str
    negligible: float
    decodable: bool | None
    conclusion: Conclusion
    tests: tuple[UsageTest, ...]
    settings: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def of(self, edit: str) -> UsageTest:
        """The test of an edit, erase or steer.

        Raises:
            AnalysisError: any other edit.
        """
        for test in self.tests:
            if test.edit == edit:
                return test
        raise AnalysisError(unknown("edit", edit, [test.edit for test in self.tests]))

    def table(self) -> pd.DataFrame:
        """One row for each edit."""
        return pd.DataFrame([asdict(test) for test in self.tests]).drop(columns="random")

    def __repr__(self) -> str:
        effects = "; ".join(
            f"{t.edit} {t.effect:.3f} [{t.low:.3f}, {t.high:.3f}], random {t.random_mean:.3f}, p={t.p_value:.3g}"
            for t in self.tests
        )
        what = f"{self.concept} at {self.site}, {self.agent}"
        return f"Usage({what}: {self.conclusion}; {self.units}: {effects}{self.remarks})"
