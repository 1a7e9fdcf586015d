"""The lines of a learning curve, from the rows of a run's `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Lines = dict[str, tuple[list[float], list[float]]]


def lines_of(rows: Iterable[Mapping[str, Any]], *, agents: bool = True) -> Lines:
    """By line, `(frames, returns)`: training returns of each group, of each agent as well, and evaluations."""
    found: Lines = {}
    for row in rows:
        of_agents = row.get("agent_returns", {}) if agents else {}
        for name, value in {**row["returns"], **of_agents}.items():
            if value is not None:
                _put(found, name, row["frames"], value)
        for group, value in row.get("evaluation", {}).items():
            _put(found, f"{group}, evaluated", row["frames"], value)
    return found


def _put(found: Lines, name: str, x: float, y: float) -> None:
    xs, ys = found.setdefault(name, ([], []))
    xs.append(x)
    ys.append(y)
