"""Whose code raised: an error of a function that marlnb called, told by the function, the file and the line."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_IMPORTING = re.compile(r"^<frozen importlib|/importlib/__init__\.py$")
_FIRST, _LAST = 2, 4  # calls that are shown of a long traceback


def describe_error(error: BaseException, *, or_library: bool = False) -> str | None:
    """`ZeroDivisionError: division by zero, in build (/home/me/my_env.py, line 12)`, and below it the calls.

    The place is the innermost one that lies neither in marlnb nor in a library; calls begin where such code does, and
    of many the middle ones are left out. None where no such code was running.

    Args:
        or_library: tell of a library's code, where there is no other, as of a stranger's that marlnb was told to call.
    """
    message, *further = str(error).splitlines() or [""]
    said = f"{type(error).__name__}: {message}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
        return f"{type(error).__name__}: {error.msg} ({where}): {(error.text or '').strip()}"
    calls = [call for call in traceback.extract_tb(error.__traceback__) if not _IMPORTING.search(call.filename)]
    own = [index for index, call in enumerate(calls) if not _lies_in(call, _OURS, *_LIBRARIES)]
    ours = [index for index, call in enumerate(calls) if _lies_in(call, _OURS)]
    if not own and (not or_library or not calls or len(calls) - 1 in ours):
        return None
    place = calls[own[-1] if own else -1]
    calls = calls[own[0] if own else max(ours, default=-1) + 1 :]
    lines = traceback.format_list(calls)
    if len(lines) > _FIRST + _LAST:
        lines[_FIRST:-_LAST] = [f"  ... {len(lines) - _FIRST - _LAST} calls between ...\n"]
    shown = "\n".join([*further, *([""] if further else []), "".join(lines).rstrip()])
    return f"{said}, in {place.name} ({place.filename}, line {place.lineno})\n\n{shown}"


def _lies_in(call: traceback.FrameSummary, *folders: str) -> bool:
    return any(call.filename.startswith(f"{folder}/") for folder in folders)
