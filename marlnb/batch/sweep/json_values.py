"""Convert values to JSON, the only form in which they are passed to a notebook on another node."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from typing import Any

from marlnb.errors import ConfigError

MAX_DEPTH = 50


def to_json_value(value: Any, path: str, depth: int = 0) -> Any:
    """The value as JSON: tuples and arrays become lists, numpy scalars Python numbers, paths texts.

    Without this, papermill would write tuples and numpy numbers into the notebook as texts.

    Args:
        path: name of the value in messages.
        depth: of the nesting.
    Raises:
        ConfigError: JSON cannot express the value (NaN, an infinity, a set, an object), or a file cannot hold it (a
            text with a NUL or a lone surrogate).
    """
    if depth > MAX_DEPTH:
        raise ConfigError(f"{path} is nested more than {MAX_DEPTH} levels deep, the maximum")
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
            raise ConfigError(f"{path} must be a finite number, since JSON has no {value}; use a text or none instead")
        return float(value)
    if isinstance(value, list | tuple | range):
        return [to_json_value(item, f"{path}[{k}]", depth + 1) for k, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, path): to_json_value(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    raise ConfigError(
        f"{path} must be a text, a number, true or false, none, a list or a mapping; "
        f"got {shorten(repr(value))} of {type(value).__name__}"
    )


def shorten(text: str, length: int = 120) -> str:
    """A text with its middle replaced by … if it is longer than `length`."""
    return text if len(text) <= length else f"{text[: length - 40]} … {text[-30:]}"


def _text(value: str, path: str) -> str:
    if "\0" in value:
        raise ConfigError(f"{path} must not contain a NUL character; got {shorten(repr(value))}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{path} must be valid Unicode; got {shorten(repr(value))}") from None
    return str(value)


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{path}: every key must be a text; got {key!r}")
    return _text(key, f"a key of {path}")
