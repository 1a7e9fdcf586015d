"""Calls third-party constructors, and turns their TypeErrors into messages about the user's arguments."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from marlnb.errors import ConfigError, EnvBuildError, MarlnbError, unknown
from marlnb.plugins import user_code
from marlnb.plugins.import_paths import load_object

_UNKNOWN = re.compile(r"(\S+)\(\) got an unexpected keyword argument '(\w+)'")
_MISSING = re.compile(r"(\S+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.*)")


def load_constructor(path: str) -> Callable[..., Any]:
    """The class of an environment, or the function that makes one, at "module:name".

    Raises:
        ConfigError: it cannot be imported, or is a class without `reset` and `step`, no function at all, or a function
            of Python itself, under whatever name a module has it: `os.system` makes no environment and runs commands.
    """
    value = load_object(path)
    home = str(getattr(getattr(value, "func", value), "__module__", None) or "")
    is_environment = not isinstance(value, type) or all(hasattr(value, name) for name in ("reset", "step"))
    if not callable(value) or not is_environment or home.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"{path} must be a function or class that returns an environment; got {value!r}")
    return value  # type: ignore[no-any-return]


def construct(where: str, constructor: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """`constructor(**kwargs)`, without its warnings.

    Args:
        where: the environment's name, for messages.
        constructor: the function or class to call.
        kwargs: its keyword arguments.
    Raises:
        EnvBuildError: it raised. For an unknown or missing keyword argument the message lists the valid ones, as far as
            signatures state them; otherwise it says where the error was raised.
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
        message = _about_arguments(error, constructor, kwargs) if isinstance(error, TypeError) else None
        if message is None:
            cause = user_code.describe_error(error, or_library=True) or f"{type(error).__name__}: {error}"
            message = f"the constructor, called with {dict(kwargs)}, raised {cause}"
        raise EnvBuildError(f"{where}: {message}") from error


def unknown_arguments(wrong: list[str], valid: list[str]) -> str:
    """A message that names the unknown keyword and the valid ones, if these are known."""
    if not valid:
        return f"its constructor has no keyword argument {wrong[0]!r}; its signature does not state the valid ones"
    return f"its constructor has {unknown('keyword argument', wrong[0], valid)}"


def _about_arguments(error: TypeError, constructor: Callable[..., Any], kwargs: Mapping[str, Any]) -> str | None:
    """A message about an unknown or missing keyword; None if the error has another cause."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if (match := _UNKNOWN.match(str(error))) and match[2] in kwargs:
        function = _find_function(match[1], frames[-1]) if len(frames) > 1 else constructor
        forwarding = [name for frame in frames[1:] for name in _forwarding_parameters(frame)]
        return unknown_arguments([match[2]], sorted({*forwarding, *_keywords(function)}))
    if (match := _MISSING.match(str(error))) and len(frames) == 1:
        valid = ", ".join(_keywords(constructor)) or "(not stated by its signature)"
        return f"its constructor needs {match[2]}; got {dict(kwargs)}. Valid: {valid}"
    return None


def _forwarding_parameters(frame: FrameType) -> tuple[str, ...]:
    """Named parameters of a function that forwards other keywords with **kwargs, as PettingZoo's `parallel_env`."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return ()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(name for name in names if name not in ("self", "cls"))


def _find_function(qualname: str, frame: FrameType) -> Any:
    """The function with this qualified name, searched in the variables of `frame`; None if it is not there."""
    for value in (*frame.f_locals.values(), *frame.f_globals.values()):
        for candidate in _callables(value):
            if getattr(candidate, "__qualname__", None) == qualname:
                return candidate
    return None


def _callables(value: Any) -> Iterator[Any]:
    """The value itself, and the `__init__` and `__new__` of its class and base classes."""
    yield value
    kind = value if isinstance(value, type) else type(value)
    for ancestor in kind.__mro__:
        yield from (vars(ancestor)[name] for name in ("__init__", "__new__") if name in vars(ancestor))


def _keywords(function: Any) -> list[str]:
    """Names of the keyword arguments of a function or class."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = parameters_of(function)
    return [name for name, item in parameters.items() if item.kind in kinds and name not in ("self", "cls")]


def parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    """Parameters by name; empty if Python cannot determine the signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
