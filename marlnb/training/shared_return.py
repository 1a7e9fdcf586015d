"""Which returns are a run's score: one for all groups only where they share their reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isclose, isfinite
from typing import Any

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


def opponent_returns(
    returns: Mapping[str, float | None], agent_returns: Mapping[str, float | None]
) -> dict[str, float]:
    """By agent, the returns of a single group whose agents play against each other, so that its mean is 0; else empty.

    Args:
        returns: by group, its mean return; None where it is not known.
        agent_returns: the same by agent.
    """
    agents = {name: value for name, value in agent_returns.items() if value is not None}
    are_known = len(returns) == 1 and len(agents) == len(agent_returns)
    is_game = are_known and is_zero_sum([sum(agents.values())], max(map(abs, agents.values()), default=0))
    return agents if is_game else {}


def exploring_returns(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns of the latest 100 or more training episodes, in a row of a run's metrics; empty before any episode ended.

    By group; where the agents of a single group play against each other by agent, of the row's own episodes.
    """
    returns, scored = row.get("returns", {}), scored_returns(row)
    return dict(row.get("recent_returns", {})) if set(scored) <= set(returns) else scored


def scored_returns(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns of a row's own episodes: by group, or by agent where those of a single group play against each other."""
    returns = row.get("returns", {})
    known = {name: value for name, value in returns.items() if value is not None}
    return opponent_returns(returns, row.get("agent_returns", {})) or known
