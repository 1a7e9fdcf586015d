"""The result of testing whether an agent uses a decoded direction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any, Literal

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result
from marlnb.analysis.stats.corrections import holm
from marlnb.display.array_summary import FieldsSummary
from marlnb.errors import AnalysisError, unknown

Conclusion = Literal["used", "decodable but not used", "not shown to be used", "not separable"]
EQUAL_VARIANCE = "the variance along it"
WHAT_EDITS_DO = {"erase": "erasing it", "steer": "steering along it"}


@dataclass(frozen=True, repr=False)
class UsageTest(FieldsSummary):
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
        return_change: mean paired change of the agent's return (for steering: forwards); NaN for tests of confounds,
            for which no episodes are played.
        return_low: lower end of its 95% t interval.
        return_high: upper end of its 95% t interval.
        random: effects of the random directions.
        given: names of what was removed from the directions beforehand; empty: nothing.
        share_left: how much of the directions' length was left after that; 1: all.
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
    given: str = ""
    share_left: float = 1.0


@dataclass(frozen=True)
class Confound:
    """A quantity that the direction carries besides its concept.

    Attributes:
        names: an observed feature or a label; several that were removed together.
        correlation: multiple correlation with the projection onto the directions, where the concept is held fixed.
        tests: the effects without it; empty where nothing of the directions was left.
        explains: whether no effect beyond random directions is left without it.
    """

    names: tuple[str, ...]
    correlation: float
    tests: tuple[UsageTest, ...]
    explains: bool


@dataclass(frozen=True, repr=False)
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
        conclusion: used: an edit moves the actions more than random directions and than directions that vary as much do
            (Holm over the two edits), the lower end of its interval is above `negligible`, and the same holds without
            what is `given`, where that can be estimated; no confound explains it. not separable: it moves them more
            than random directions, but a control is missing or explains the effect (`not_separable_from`). decodable
            but not used: the label is decodable, and the upper ends of both intervals are at most `negligible`. not
            shown to be used: otherwise; this is no proof that the direction is not used.
        tests: one for each edit; with something given, two more for what is left of the directions without it.
        settings: the options, enough to repeat the test.
        not_separable_from: what explains the effect as well; empty unless the conclusion is "not separable".
        confounds: what else the directions carry, tested where there was an effect to explain.
        carried_by: observed features and labels that the concept all but determines: the form in which it is observed.
        notes: facts that are no reason for distrust.
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
    not_separable_from: tuple[str, ...] = ()
    confounds: tuple[Confound, ...] = ()
    carried_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, edit: str, *, given: bool = False) -> UsageTest:
        """The test of an edit, erase or steer; with `given`, that of what is left without what was given.

        Raises:
            AnalysisError: any other edit, or `given` where nothing was given or nothing was left.
        """
        tests = [test for test in self.tests if bool(test.given) == given]
        for test in tests:
            if test.edit == edit:
                return test
        raise AnalysisError(unknown("edit" + " with given=" * given, edit, [test.edit for test in tests]))

    @property
    def verdict(self) -> str:
        test = strongest(of_given(self.tests, False))
        what = f"{self.concept} at {self.site}"
        evidence = f"{_effect(test, self.units)}, {_controls(of_given(self.tests, False), test)}"
        given = of_given(self.tests, True)
        if given:
            kept = strongest(given)
            evidence += f"; without what it carries of {kept.given}: {_effect(kept, '')}, {_controls(given, kept)}"
        opening = {
            "used": f"{self.agent} uses {what}",
            "decodable but not used": f"{self.agent} does not use {what}, which can be decoded",
            "not shown to be used": f"Not shown that {self.agent} uses {what}",
            "not separable": f"Not separable from {' and '.join(self.not_separable_from)}: whether {self.agent} uses "
            f"{what}",
        }[self.conclusion]
        tail = "".join(f"; {clause}" for clause in self._clauses())
        return f"{opening}: {evidence}; {self.episodes} episodes{tail}."

    def _clauses(self) -> Iterator[str]:
        if self.carried_by:
            yield f"observed as {', '.join(self.carried_by)}"
        if self.conclusion == "used" and self.confounds:
            names = ", ".join(name for confound in self.confounds for name in confound.names)
            yield f"{names} does not explain it"
        if self.conclusion in ("decodable but not used", "not shown to be used"):
            yield "whether other directions or sites carry the same information instead was not tested"

    def table(self) -> pd.DataFrame:
        """One row for each edit, with the confounds that were tested below."""
        tests = [*self.tests, *(test for confound in self.confounds for test in confound.tests)]
        return pd.DataFrame([asdict(test) for test in tests]).drop(columns="random")

    @property
    def p_holm(self) -> tuple[float, ...]:
        """Of each of `tests`: its p-value against random directions, corrected for the edits (Holm)."""
        families = of_given(self.tests, False), of_given(self.tests, True)
        by_test = {id(test): float(p) for tests in families for test, p in zip(tests, corrected(tests)[0])}
        return tuple(by_test[id(test)] for test in self.tests)

    def _repr_table(self) -> pd.DataFrame:
        families = [of_given(self.tests, False), of_given(self.tests, True), *(c.tests for c in self.confounds)]
        return pd.DataFrame(
            [
                {
                    "edit": test.edit,
                    "without": test.given or "-",
                    f"effect ({self.units})": f"{test.effect:.3f} [{test.low:.3f}, {test.high:.3f}]",
                    "random, p (Holm)": f"{test.random_mean:.3f}, {p:.2g}",
                    "equal variance, p (Holm)": "none" if test.p_matched is None
                    else f"{test.matched_mean:.3f}, {p_matched:.2g}",
                    "return": "" if isnan(test.return_change)
                    else f"{test.return_change:+.2f} [{test.return_low:.2f}, {test.return_high:.2f}]",
                }
                for tests in families
                for test, p, p_matched in zip(tests, *corrected(tests))
            ]
        )  # fmt: skip


def of_given(tests: Sequence[UsageTest], given: bool) -> tuple[UsageTest, ...]:
    """The tests with, or without, what was given."""
    return tuple(test for test in tests if bool(test.given) == given)


def corrected(tests: Sequence[UsageTest]) -> tuple[np.ndarray, np.ndarray]:
    """Holm's p-values `[test]` over some edits: against random directions, and against those of equal variance.

    A missing control counts as p = 1.
    """
    p_matched = [1.0 if test.p_matched is None else test.p_matched for test in tests]
    return holm(np.array([test.p_value for test in tests])), holm(np.array(p_matched))


def beyond_random(tests: Sequence[UsageTest], negligible: float) -> tuple[UsageTest, ...]:
    """The edits that move actions more than random directions (Holm over the edits) and than `negligible`."""
    return tuple(test for p, test in zip(corrected(tests)[0], tests) if p <= ALPHA and test.low > negligible)


def beyond_matched(tests: Sequence[UsageTest], negligible: float) -> bool:
    """Whether one of `beyond_random` also moves them more than directions that vary as much (Holm over the edits)."""
    candidates = beyond_random(tests, negligible)
    return any(p <= ALPHA and test in candidates for p, test in zip(corrected(tests)[1], tests))


def strongest(tests: Sequence[UsageTest]) -> UsageTest:
    """The edit with the smallest p-value; of equal ones, that with the largest effect."""
    return min(tests, key=lambda test: (test.p_value, -test.effect))


def _effect(test: UsageTest, units: str) -> str:
    moved = f"{WHAT_EDITS_DO[test.edit]} moves its actions by {test.effect:.2f} [{test.low:.2f}, {test.high:.2f}]"
    return f"{moved} ({units})" if units else moved


def _controls(tests: Sequence[UsageTest], test: UsageTest) -> str:
    """The random directions and those of equal variance, with p-values corrected for the edits (Holm)."""
    p, p_matched = (values[list(tests).index(test)] for values in corrected(tests))
    text = f"random directions by {test.random_mean:.2f} (p = {p:.2g})"
    if test.p_matched is None:
        return f"{text}, and no random direction varies as much"
    return f"{text}, those that vary as much by {test.matched_mean:.2f} (p = {p_matched:.2g})"
