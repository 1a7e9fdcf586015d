"""A stranger's constructor, called with the arguments that a user gave; what it refuses is said in the user's words."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from marlnb import user_code
from marlnb.errors import EnvBuildError, MarlnbError, unknown

_UNKNOWN = re.compile(r"(\S+)\(\) got an unexpected keyword argument '(\w+)'")
_MISSING = re.compile(r"(\S+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.*)")


def construct(where: str, constructor: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """`constructor(**kwargs)`, its warnings unheard.

    Args:
        where: the environment's name, for messages.
    Raises:
        EnvBuildError: it raised. For a keyword that it does not take, or one that it lacks, the text says which it
            takes, as far as signatures tell; for all else where it was raised.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return constructor(**kwargs)
    except EnvBuildError:
        raise
    except MarlnbError as error:
        raise EnvBuildError(str(error)) from error
    except Exception as error:
        told = _about_arguments(error, constructor, kwargs) if isinstance(error, TypeError) else None
        if told is None:
            whose = user_code.describe_error(error, or_library=True) or f"{type(error).__name__}: {error}"
            told = f"the constructor, given {dict(kwargs)}, raised {whose}"
        raise EnvBuildError(f"{where}: {told}") from error


def unknown_arguments(wrong: list[str], valid: list[str]) -> str:
    """Says which keyword is unknown, and which there are, none where they cannot be told."""
    if not valid:
        return f"its constructor has no keyword argument {wrong[0]!r}; its signature does not tell which it has"
    return f"its constructor has {unknown('keyword argument', wrong[0], valid)}"


def _about_arguments(error: TypeError, constructor: Callable[..., Any], kwargs: Mapping[str, Any]) -> str | None:
    """What is wrong with the keywords themselves, None where that is not the matter."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if (found := _UNKNOWN.match(str(error))) and found[2] in kwargs:
        within = _named(found[1], frames[-1]) if len(frames) > 1 else constructor
        passing = [name for frame in frames[1:] for name in _passed_on(frame)]
        return unknown_arguments([found[2]], sorted({*passing, *_keywords(within)}))
    if (found := _MISSING.match(str(error))) and len(frames) == 1:
        takes = ", ".join(_keywords(constructor)) or "(not told by its signature)"
        return f"its constructor needs {found[2]}; given {dict(kwargs)}. It takes {takes}"
    return None


def _passed_on(frame: FrameType) -> tuple[str, ...]:
    """The named parameters of a function that hands further keywords on, as PettingZoo's `parallel_env` does."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return ()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(name for name in names if name not in ("self", "cls"))


def _named(qualname: str, frame: FrameType) -> Any:
    """The function that `frame` called by a name of its own; None where it is nowhere to be seen."""
    for value in (*frame.f_locals.values(), *frame.f_globals.values()):
        for candidate in _callables(value):
            if getattr(candidate, "__qualname__", None) == qualname:
                return candidate
    return None


def _callables(value: Any) -> Iterator[Any]:
    """A function, or what is called where a class is, and in those that it is derived from."""
    yield value
    kind = value if isinstance(value, type) else type(value)
    for ancestor in kind.__mro__:
        yield from (vars(ancestor)[name] for name in ("__init__", "__new__") if name in vars(ancestor))


def _keywords(function: Any) -> list[str]:
    """Names of the arguments that a function or class can be given by keyword."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = parameters_of(function)
    return [name for name, item in found.items() if item.kind in kinds and name not in ("self", "cls")]


def parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    """By name; empty for what has no signature that Python can tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
