"""One return for all groups of agents, only where they share their reward: hunters and prey have no common score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isclose, isfinite

RELATIVE_TOLERANCE = 1e-6
"""Sums and means of the same float32 rewards differ by rounding."""


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


def is_zero_sum(sums: Iterable[float], max_return: float) -> bool:
    """Whether agents play against each other: their returns add up to 0 in every episode.

    Args:
        sums: of the agents' returns in each episode.
        max_return: the largest absolute return of an agent.
    """
    return bool(max_return > 0) and all(abs(total) <= RELATIVE_TOLERANCE * max_return for total in sums)
