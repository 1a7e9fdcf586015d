"""One return for all groups of agents, only where they share their reward: hunters and prey have no common score."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose, isfinite

RELATIVE_TOLERANCE = 1e-6
"""Means of the same float32 rewards in groups of different sizes differ by rounding."""


def shared_return(returns: Mapping[str, float | None]) -> float | None:
    """The mean return of one agent, if it is the same in every group; None if groups earn differently.

    Args:
        returns: by group, its mean return; None or NaN where it is not known.
    """
    known = [value for value in returns.values() if value is not None and isfinite(value)]
    if not known or len(known) < len(returns) or earn_differently(returns):
        return None
    return sum(known) / len(known)


def earn_differently(returns: Mapping[str, float | None]) -> bool:
    """Whether two groups' mean returns differ."""
    known = [value for value in returns.values() if value is not None and isfinite(value)]
    return bool(known) and not isclose(min(known), max(known), rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-9)
