"""Plain JSON: the only form in which a value crosses from a person to a notebook on another node."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from typing import Any

from marlnb.errors import ConfigError

DEEPEST = 50


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """The value as JSON holds it: tuples and arrays as lists, scalars of numpy as Python's, paths as texts.

    papermill would write a tuple and a number of numpy into the notebook as texts.

    Args:
        path: what the value is called in messages.
    Raises:
        ConfigError: JSON has no such value (NaN, an infinity, a set, an object), or no file could hold it (a text with
            a NUL or half a character).
    """
    if depth > DEEPEST:
        raise ConfigError(f"{path} is nested more than {DEEPEST} deep")
    if hasattr(value, "tolist") and hasattr(value, "dtype"):  # numpy, pandas, torch
        value = value.tolist()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{path} must be a finite number: JSON has no {value}; a text or none can stand for it")
        return float(value)
    if isinstance(value, list | tuple | range):
        return [plain(item, f"{path}[{k}]", depth + 1) for k, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, path): plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    raise ConfigError(
        f"{path} must be plain data (a text, a number, true or false, none, a list, a mapping); "
        f"got {shortened(repr(value))} of {type(value).__name__}"
    )


def shortened(text: str, length: int = 120) -> str:
    """A text, its middle left out where it is long."""
    return text if len(text) <= length else f"{text[: length - 40]} … {text[-30:]}"


def _text(value: str, path: str) -> str:
    if "\0" in value:
        raise ConfigError(f"{path} must not hold a NUL character; got {shortened(repr(value))}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{path} must be valid Unicode, which files can hold; got {shortened(repr(value))}") from None
    return str(value)


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{path}: keys must be texts; got {key!r}")
    return _text(key, f"a key of {path}")
