"""What commands print: results on stdout, whole and alone; everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Whatever libraries and worker processes print meanwhile goes to stderr, so that stdout holds the result alone."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no stdout at all
        yield
        return
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; numbers to the right."""
    table = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    numeric = [bool(rows) and all(isinstance(row[k], int | float) for row in rows) for k in range(len(header))]
    for row in table:
        cells = [f"{cell:>{w}}" if right else f"{cell:<{w}}" for cell, w, right in zip(row, widths, numeric)]
        print("  ".join(cells).rstrip())


def say(message: str) -> None:
    """A message for the person at the terminal."""
    print(message, file=sys.stderr, flush=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
