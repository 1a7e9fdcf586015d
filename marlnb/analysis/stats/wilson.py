"""Wilson's interval of a share."""

from __future__ import annotations

import math
from statistics import NormalDist

from marlnb.analysis.results import CONFIDENCE
from marlnb.analysis.stats.bootstrap import Interval


def wilson_interval(share: float, n: int, confidence: float = CONFIDENCE) -> Interval:
    """The share of successes in n independent trials, with its interval, which stays in [0, 1].

        (s + z^2 / 2n +- z sqrt(s (1 - s) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Where s is 0, the difference rounds to nearly 0. So the lower end is computed as the equal
    s^2 / (s + z^2 / 2n + z sqrt(...)), and the upper one likewise from 1 - s.

    A mean of scores in [0, 1], as 1/2 for a draw, has at most the variance s (1 - s) of a share, so for such scores the
    interval is not too narrow.

    Source: Wilson 1927, Probable Inference (10.1080/01621459.1927.10502953).
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    half = z**2 / (2 * n) + z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(share, share**2 / (share + half), 1 - (1 - share) ** 2 / (1 - share + half))
