"""Output of commands: results go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from marlnb.display.formatting import format_number
from marlnb.errors import REPLACEMENT, printable


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Redirects the output of libraries and worker processes to stderr, so that stdout has only the result."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def open_closed_streams() -> None:
    """Opens the null device for standard streams that are closed, as by a daemon; child processes inherit it.

    Without it, the next file that is opened would get the stream's number, and with it what C code prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def escape_unencodable() -> None:
    """Lets stdout write characters that its encoding lacks as escapes, as stderr does: `\\xfc` for ü in ASCII."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_text(text: object, end: str = "\n") -> None:
    """Prints a result for people; names in it cannot control the terminal."""
    print(printable(str(text)), end=end, flush=True)


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints columns as wide as their widest cell, with numbers aligned to the right."""
    table = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    numeric = [bool(rows) and all(isinstance(row[k], int | float) for row in rows) for k in range(len(header))]
    for row in table:
        cells = [f"{cell:>{w}}" if right else f"{cell:<{w}}" for cell, w, right in zip(row, widths, numeric)]
        print_text("  ".join(cells).rstrip())


def say(message: str, end: str = "\n") -> None:
    """Prints a message on stderr; names in it cannot control the terminal."""
    print(printable(message), end=end, file=sys.stderr, flush=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value)).replace("\n", REPLACEMENT).replace("\t", REPLACEMENT)  # a cell is in one line
