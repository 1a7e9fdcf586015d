"""Pickles for worker processes: what a notebook or a script defines goes along by value."""

from __future__ import annotations

import functools
import io
from collections import ChainMap
from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle

LOCAL = "<locals>"  # in the name of what a function defines


def pickled(value: Any) -> bytes:
    """A pickle that another process can load. Unlike cloudpickle's, it also holds cached functions of `__main__`."""
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


def _reduce_cached(cached: functools._lru_cache_wrapper[Any]) -> str | tuple[Any, ...]:
    if cached.__module__ == "__main__" or LOCAL in cached.__qualname__:
        return _with_cache, (cached.__wrapped__, cached.cache_parameters())
    return cached.__qualname__


def _with_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    return functools.lru_cache(**parameters)(function)


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar = ChainMap(
        {functools._lru_cache_wrapper: _reduce_cached}, cloudpickle.Pickler.dispatch_table
    )
