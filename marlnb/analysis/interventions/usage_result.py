"""The answer to whether an agent uses what a probe found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd

from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError

Verdict = Literal["used", "decodable but not used", "not shown to be used"]


@dataclass(frozen=True)
class UsageTest:
    """What one edit along the direction does to the agent's choices, beside random directions.

    Attributes:
        edit: erase, or steer (each way, averaged).
        effect, low, high: how far the action distributions move at the same moments, mean over steps and then episodes,
            with its 95% t interval. In `Usage.units`.
        random_mean, random_high: of random directions as long: the mean effect, and that which 95 of 100 stay below.
            p_value: (1 + random directions with at least the effect) / (1 + random directions).
        matched_mean, p_matched: the same of random directions with as much of the activations' variance along them.
            Where most of what varies is used, these move the choices too: a large p_matched says that the direction is
            no more to the agent than others that vary as much, not that it is nothing. None where there are none such.
        return_change, return_low, return_high: what the edit does to the agent's return, paired over episodes (for
            steering: forwards).
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
class Usage:
    """Whether an agent uses what lies along a direction.

    Attributes:
        dose: of the steering, in standard deviations. decodable: whether the decoding that it came from read the label
            better than chance; None where a bare direction was asked about.
        verdict: used: an edit moves the choices more than random directions do (Holm over the two edits), and by more
            than `negligible` at the lower end of its interval. decodable but not used: it is read from there, and
            neither edit moves them by more than `negligible` at the upper end. Else not shown to be used: no effect
            beyond the controls, which is no proof that there is none.
    """

    concept: str
    site: str
    agent: str
    n_directions: int
    n_random: int
    episodes: int
    dose: float
    units: str
    negligible: float
    decodable: bool | None
    verdict: Verdict
    tests: tuple[UsageTest, ...]
    settings: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def of(self, edit: str) -> UsageTest:
        """erase or steer.

        Raises:
            AnalysisError: another.
        """
        for test in self.tests:
            if test.edit == edit:
                return test
        raise AnalysisError(f"no test {edit!r}; there are {[test.edit for test in self.tests]}")

    def table(self) -> pd.DataFrame:
        """One line an edit."""
        return pd.DataFrame([asdict(test) for test in self.tests]).drop(columns="random")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        told = "; ".join(
            f"{t.edit} {t.effect:.3f} [{t.low:.3f}, {t.high:.3f}], at random {t.random_mean:.3f}, p={t.p_value:.3g}"
            for t in self.tests
        )
        flag = doubts(self.warnings)
        return f"Usage({self.concept} at {self.site}, {self.agent}: {self.verdict}; {self.units}: {told}{flag})"

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())
