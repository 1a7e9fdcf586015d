"""The options that select a part of a recording, shared by extract and export."""

from __future__ import annotations

import argparse
from typing import Any

from marlnb.errors import RecordingError

MAX_DIGITS = 7


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--episodes",
        metavar="K,K:K",
        help="numbers and ranges that exclude their end, such as 0,3,10:20 (default: all)",
    )
    add("--sites", nargs="+", metavar="GLOB", help="globs over site names (default: all)")
    help_fields = "globs over the other fields: observation, labels/*, ... (default: all)"
    add("--fields", nargs="+", metavar="GLOB", help=help_fields)


def chosen_selection(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"episodes": _numbers(arguments.episodes), "sites": arguments.sites, "fields": arguments.fields}


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        ends = [first, last] if colon else [first]
        if not all(end.isdecimal() and len(end) <= MAX_DIGITS for end in ends):
            raise RecordingError(f"--episodes must be numbers and ranges, such as 0,3,10:20; got {text!r}")
        numbers += range(int(first), int(last)) if colon else [int(first)]
    return numbers
