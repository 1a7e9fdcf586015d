"""Numbers and commands for people, written the same way in messages, tables, forms and logs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def format_bytes(size: float) -> str:
    """A size in powers of 1000 with three significant digits: `512 B`, `3.14 kB`, `29.7 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def count(number: int, word: str) -> str:
    """A number with its word: `1 job`, `12 jobs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def format_count(number: float) -> str:
    """A number in at most five characters: `999`, `12.3k`, `1.25M`."""
    if number >= 999_500:
        return f"{number / 1e6:.2f}M"
    return f"{number / 1e3:.1f}k" if number >= 1000 else f"{number:.0f}"


def format_number(value: float, digits: int = 4, *, signed: bool = False) -> str:
    """Significant digits, and whole numbers in full below a million: `0.01234`, `9054`, `11634`, `1.163e+06`."""
    sign = "+" if signed else ""
    text = f"{value:{sign}.{digits}g}"
    return f"{value:{sign}.0f}" if "e+" in text and abs(value) < 999_999.5 else text


def format_interval(value: float, low: float, high: float, digits: int = 3, *, signed: bool = False) -> str:
    """A number with its interval: `0.512 [0.433, 0.591]`; signed: with a plus where the number is positive."""
    number = format_number(value, digits, signed=signed)
    return f"{number} [{format_number(low, digits)}, {format_number(high, digits)}]"


def format_clock(seconds: float) -> str:
    """A duration as a clock shows it, for counters that change: `0:42`, `12:05`, `3:07:00`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_duration(seconds: float) -> str:
    """A duration in words: `0.34 s`, `58 s`, `4 min 30 s`, `2 h 05 min`, `1,200 h`."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours:,} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def short_path(path: Path) -> str:
    """A path as one types it: relative to the working folder if it lies below that, else in full."""
    try:
        return str(path.relative_to(os.getcwd()))
    except (OSError, ValueError):  # the working folder was deleted, or it lies elsewhere
        return str(path)


def marlnb_command(verb: str, path: object) -> str:
    """A command as one types it in a shell: `marlnb resume 'my runs/first'`."""
    return f"marlnb {verb} {shlex.quote(str(path))}"
