"""Which part of a recording is meant: the options that extract and export share."""

from __future__ import annotations

import argparse
from typing import Any

from marlnb.errors import RecordingError


def add_part_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", metavar="K,K:K", help="numbers and ranges without their ends, as 0,3,10:20")
    parser.add_argument("--sites", nargs="+", metavar="GLOB", help="(default: all)")
    parser.add_argument("--fields", nargs="+", metavar="GLOB", help="observation, labels/*, ... (default: all)")


def chosen_part(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"episodes": _numbers(arguments.episodes), "sites": arguments.sites, "fields": arguments.fields}


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        if not first.isdigit() or (colon and not last.isdigit()):
            raise RecordingError(f"--episodes takes numbers and ranges, as 0,3,10:20; got {text!r}")
        found += range(int(first), int(last)) if colon else [int(first)]
    return found
