"""Rows of numbers in a run folder, checked: the folder may come from anyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from marlnb.errors import RunError
from marlnb.training.runs.files import EVALUATIONS, parse_line, read_lines
from marlnb.values import MAX_INTEGER

_ADVICE = "; delete this line to continue without it"
BY_NAME = ("returns", "agent_returns", "recent_returns", "evaluation", "learning")  # of groups or agents


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` or `evaluations.jsonl`. An incomplete last line is skipped.

    Raises:
        RunError: another line is damaged, or holds something else than numbers.
    """
    lists = path.name == EVALUATIONS
    try:
        return [checked_row(row, f"{path}, line {number},", lists) for number, row in enumerate(read_lines(path), 1)]
    except RunError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise RunError(f"{error}{_ADVICE}") from error.__cause__


def parse_rows(path: Path, lines: Sequence[str], first: int) -> list[dict[str, Any]]:
    """The rows of complete lines, the first of which is line `first` of the file. Raises RunError as `read_rows`."""
    rows, lists = [], path.name == EVALUATIONS
    for number, line in enumerate(lines, first):
        where = f"{path}, line {number},"
        try:
            rows.append(checked_row(parse_line(line, where), where, lists))
        except RunError as error:
            raise RunError(f"{error}{_ADVICE}") from error.__cause__
    return rows


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
        for number in leaves(value):
            if not isinstance(number, int | float | None) or (isinstance(number, int) and abs(number) > MAX_INTEGER):
                raise RunError(f"{where} is damaged: expected numbers in {name}; got {str(number)[:80]!r}")
    return {name: {} if name in BY_NAME and value is None else value for name, value in row.items()}


def leaves(value: Any) -> Iterator[Any]:
    """The numbers, strings and nulls in nested objects and lists."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value
