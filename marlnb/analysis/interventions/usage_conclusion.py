"""What the evidence for the use of directions amounts to: the conclusion, and what a reader must know about it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marlnb.analysis.interventions.usage_evidence import UsageEvidence
from marlnb.analysis.interventions.usage_result import (
    EQUAL_VARIANCE,
    Conclusion,
    beyond_matched,
    beyond_random,
    of_given,
)
from marlnb.analysis.results import MIN_EPISODES_FOR_T_TESTS, few_episodes_warning

MIN_AGREEMENT = 0.9


def conclude(evidence: UsageEvidence, decodable: bool | None) -> tuple[Conclusion, tuple[str, ...]]:
    """The conclusion, and what the effect is not separable from.

    Args:
        decodable: whether the label was read better than chance; None where no decoding says so.
    """
    negligible, given = evidence.negligible, evidence.given_names
    alone, without_given = of_given(evidence.tests, False), of_given(evidence.tests, True)
    if not beyond_random(alone, negligible):
        small = all(test.high <= negligible for test in alone)
        return ("decodable but not used" if small and decodable else "not shown to be used"), ()
    others = [] if beyond_matched(alone, negligible) else [EQUAL_VARIANCE]
    is_precise = evidence.agreement >= MIN_AGREEMENT
    if given and not (without_given and is_precise and beyond_matched(without_given, negligible)):
        others += given
    others += [name for confound in evidence.confounds if confound.explains for name in confound.names]
    return ("not separable" if others else "used"), tuple(dict.fromkeys(others))


def usage_notes(name: str, evidence: UsageEvidence) -> Iterator[str]:
    """Facts that are no reason for distrust; name: of the concept."""
    if evidence.given_names and not of_given(evidence.tests, True):
        yield f"given {', '.join(evidence.given_names)}, nothing of the direction of {name} is left to test"
    n_candidates, n_tested = evidence.correlates.n_candidates, len(evidence.correlates.candidates)
    if evidence.concept is None:
        yield (
            f"{name!r} is no label of these episodes (labels= adds one), so other quantities that its direction may "
            "carry were not tested; given= tests those that you name"
        )
    elif n_candidates > n_tested:
        yield f"{n_candidates} quantities correlate with the direction; the {n_tested} strongest were tested"


def usage_warnings(evidence: UsageEvidence, episodes: int, min_random_directions: int) -> Iterator[str]:
    """Reasons to distrust the result.

    Args:
        min_random_directions: fewer cannot give a p-value that survives the correction.
    """
    tests = evidence.direction_tests
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    if tests.n_random < min_random_directions:
        smallest = 1 / (1 + tests.n_random)
        yield f"{tests.n_random} random directions cannot give a p-value below {smallest:.2g}"
    deviation = min(float((tests.activations @ np.array(direction.vector)).std()) for direction in tests.directions)
    if deviation < 1e-6:
        yield "the activations do not vary along the direction in these episodes"
    if all(test.effect == 0 for test in evidence.tests):
        yield "no edit changed any action distribution: check that the site leads to the agent's actions"
    if evidence.agreement < MIN_AGREEMENT:
        yield (
            f"what is left of the directions without {', '.join(evidence.given_names)} is estimated imprecisely: "
            f"halves of the episodes agree by {evidence.agreement:.2f} (cosine; {MIN_AGREEMENT} is enough); raise "
            "episodes"
        )
