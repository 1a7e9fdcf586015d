"""Checks of what a run folder says about its training: rows of numbers, and the status. It may come from anyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from marlnb.errors import RunError
from marlnb.training.runs.files import EVALUATIONS, parse_line, read_lines
from marlnb.training.runs.states import STATES
from marlnb.values import MAX_INTEGER

BY_NAME = ("returns", "agent_returns", "recent_returns", "evaluation", "learning")  # of groups or agents
_STATUS_TYPES: dict[str, type | tuple[type, ...]] = {
    "state": str,
    **dict.fromkeys(("iteration", "frames", "frames_total", "pid"), int),
    **dict.fromkeys(("frames_per_second", "eta_s", "updated"), (int, float)),
    **dict.fromkeys(("host", "reason", "error"), str),
    **dict.fromkeys(("limits", "scores"), dict),
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` or `evaluations.jsonl`. An incomplete last line is skipped.

    Raises:
        RunError: another line is damaged, or holds something else than numbers.
    """
    lists = path.name == EVALUATIONS
    return [checked_row(row, f"{path}, line {number},", lists) for number, row in enumerate(read_lines(path), 1)]


def parse_rows(path: Path, lines: list[str]) -> list[dict[str, Any]]:
    """The rows of complete lines. Raises RunError as `read_rows`."""
    where, lists = f"{path}: a line", path.name == EVALUATIONS
    return [checked_row(parse_line(line, where), where, lists) for line in lines]


def checked_row(row: Mapping[str, Any], where: str, lists: bool) -> dict[str, Any]:
    """One row, whose values are numbers, null, or such by name.

    Args:
        row: from the file.
        where: start of the message.
        lists: whether returns are lists of numbers, one for each episode.
    Raises:
        RunError: another type, or no iteration.
    """
    if not isinstance(row.get("iteration"), int) or isinstance(row["iteration"], bool):
        raise RunError(f"{where} is damaged: expected the number of an iteration; got {str(row.get('iteration'))[:80]}")
    for name, value in row.items():
        if name in BY_NAME and not isinstance(value, dict | None):
            raise RunError(f"{where} is damaged: expected {name} by group; got {str(value)[:80]}")
        if name == "returns" and any(isinstance(item, list) != lists for item in (value or {}).values()):
            raise RunError(f"{where} is damaged: expected returns by group; got {str(value)[:80]}")
        for number in _leaves(value):
            if not isinstance(number, int | float | None) or (isinstance(number, int) and abs(number) > MAX_INTEGER):
                raise RunError(f"{where} is damaged: expected numbers in {name}; got {str(number)[:80]!r}")
    return {name: {} if name in BY_NAME and value is None else value for name, value in row.items()}


def checked_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a status that have the right type. Without a known state, the training was interrupted."""
    known = {
        name: value
        for name, value in status.items()
        if (value is None or isinstance(value, _STATUS_TYPES.get(name, object))) and all(map(_is_json, _leaves(value)))
    }
    state = known.get("state")
    return {**known, "frames": known.get("frames") or 0, "state": state if state in STATES else "interrupted"}


def _is_json(value: Any) -> bool:
    """Whether a value can be written as JSON again, and computed with: infinities, NaN and huge integers cannot."""
    return isfinite(value) if isinstance(value, float) else not isinstance(value, int) or abs(value) <= MAX_INTEGER


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value
