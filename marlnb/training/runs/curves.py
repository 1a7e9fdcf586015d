"""The numbers of a run as curves over frames: returns, evaluations, and what iterations report, such as losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from marlnb.training.shared_return import opponent_returns

TOP_LEVEL = ("frames_per_second", "stepping_s", "acting_s", "learning_s", "length")
Curves = dict[str, tuple[list[float], list[float]]]


def return_curves(rows: Iterable[Mapping[str, Any]], *, agents: bool = True) -> Curves:
    """The curves of rows of `metrics.jsonl`: training returns of each group and agent, and evaluations.

    Args:
        agents: whether each agent has a curve.
    Returns:
        By name, `(frames, returns)`.
    """
    curves: Curves = {}
    for row in rows:
        evaluations = {f"{group}, evaluated": value for group, value in row.get("evaluation", {}).items()}
        of_agents = agent_returns(row) if agents else {}
        _add(curves, row, {**row.get("returns", {}), **of_agents, **evaluations})
    return curves


def agent_returns(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The return of each agent by the name of its curve: `a_0`, or `a_0 (agent)` if a group has that name."""
    groups = row.get("returns", {})
    returns = row.get("agent_returns", {}).items()
    return {f"{name} (agent)" if name in groups else name: value for name, value in returns}


def hidden_at_first(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The curves that a chart hides at first: those of single agents; where these play against each other, that of
    their group, which is always 0."""
    rows = list(rows)
    agents = dict.fromkeys(name for row in rows for name in agent_returns(row))
    games = [row for row in rows if opponent_returns(row.get("returns", {}), row.get("agent_returns", {}))]
    return list(games[0]["returns"] if games else agents)


def metric_curves(rows: Iterable[Mapping[str, Any]]) -> Curves:
    """By path, such as `listener/entropy`, the numbers that iterations report: `(frames, values)`."""
    curves: Curves = {}
    for row in rows:
        _add(curves, row, metric_values(row))
    return curves


def metric_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one iteration by path, such as `listener/entropy`."""
    learning = {
        f"{group}/{name}": value
        for group, values in row.get("learning", {}).items()
        for name, value in values.items()
        if isinstance(value, int | float)
    }
    return {**learning, **{name: row[name] for name in TOP_LEVEL if isinstance(row.get(name), int | float)}}


def _add(curves: Curves, row: Mapping[str, Any], values: Mapping[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None and "frames" in row:
            xs, ys = curves.setdefault(name, ([], []))
            xs.append(row["frames"])
            ys.append(value)
