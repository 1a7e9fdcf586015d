"""Describes an error that a user's code raised when marlnb called it: function, file and line."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

_MARLNB = str(Path(__file__).parent.parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_IMPORTING = re.compile(r"^<frozen importlib|/importlib/__init__\.py$")
_FIRST, _LAST = 2, 4  # calls shown at both ends of a long traceback


def describe_error(error: BaseException, *, or_library: bool = False) -> str | None:
    """`ZeroDivisionError: division by zero, in build (/home/me/my_env.py, line 12)`, followed by the calls.

    The line is the innermost one that is neither in marlnb nor in a library. The calls start where such code starts;
    the middle of a long traceback is omitted. None if no such code was running.

    Args:
        error: with its traceback.
        or_library: if no user code was running, describe library code, for instance a third-party constructor.
    """
    message, *more_lines = str(error).splitlines() or [""]
    title = f"{type(error).__name__}: {message}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
        return f"{type(error).__name__}: {error.msg} ({where}): {(error.text or '').strip()}"
    calls = [call for call in traceback.extract_tb(error.__traceback__) if not _IMPORTING.search(call.filename)]
    user_calls = [index for index, call in enumerate(calls) if not _is_in(call, _MARLNB, *_LIBRARIES)]
    marlnb_calls = [index for index, call in enumerate(calls) if _is_in(call, _MARLNB)]
    if not user_calls and (not or_library or not calls or len(calls) - 1 in marlnb_calls):
        return None
    source = calls[user_calls[-1] if user_calls else -1]
    calls = calls[user_calls[0] if user_calls else max(marlnb_calls, default=-1) + 1 :]
    lines = traceback.format_list(calls)
    if len(lines) > _FIRST + _LAST:
        lines[_FIRST:-_LAST] = [f"  ... {len(lines) - _FIRST - _LAST} calls omitted ...\n"]
    details = "\n".join([*more_lines, *([""] if more_lines else []), "".join(lines).rstrip()])
    return f"{title}, in {source.name} ({source.filename}, line {source.lineno})\n\n{details}"


def _is_in(call: traceback.FrameSummary, *folders: str) -> bool:
    return any(call.filename.startswith(f"{folder}/") for folder in folders)
