"""Notices: lines on stderr that say what a user should know, while the work continues."""

from __future__ import annotations

import sys

from marlnb.errors import bounded, printable

MAX_LENGTH = 400  # a compiler's error may have thousands of lines


def print_notice(message: str) -> None:
    """Prints a line that begins with "marlnb:", shortened if it is long."""
    print(f"marlnb: {printable(bounded(message, MAX_LENGTH))}", file=sys.stderr, flush=True)
