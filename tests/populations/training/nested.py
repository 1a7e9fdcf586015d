"""Nested states as flat values, to compare two of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def values(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor and number of a nested state, by its position."""
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else None
    if items is None:
        yield path, state
    else:
        for key, value in items:
            yield from values(value, f"{path}/{key}")
