"""Objects that hold arrays, in one line: shape, type and range of an array instead of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import prod
from typing import Any

MAX_NUMBERS = 8
"""A tuple of more numbers is described, not written out."""


class FieldsSummary:
    """Base of dataclasses that hold arrays: they are shown by `fields_summary`, and in a notebook as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return fields_summary(self)

    def _repr_html_(self) -> str:
        from marlnb.display.notebook_html import facts_html

        facts: dict[str, str] = {}
        for name, value in _shown_fields(self):
            items = value.items() if isinstance(value, Mapping) else ()
            facts |= {f"{name}[{key!r}]": value_summary(item) for key, item in items} or {name: value_summary(value)}
        return facts_html(type(self).__name__, facts)


def fields_summary(instance: Any) -> str:
    """A dataclass as Python writes it, but arrays as `array_summary` describes them, and numbers with four digits."""
    values = ", ".join(f"{name}={value_summary(value)}" for name, value in _shown_fields(instance))
    return f"{type(instance).__name__}({values})"


def value_summary(value: Any) -> str:
    """One value: arrays and long tuples by shape and range, also inside of mappings and tuples; else its repr."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return array_summary(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {value_summary(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if _is_long(value):
        return f"{len(value)} numbers from {min(value):.3g} to {max(value):.3g}"
    if type(value) is tuple:
        return f"({', '.join(map(value_summary, value))}{',' * (len(value) == 1)})"
    return repr(value)


def array_summary(values: Any) -> str:
    """Shape, type and range of an array or tensor, such as `[64, 3, 18] float32 from -1.2 to 0.98`."""
    text = f"{list(values.shape)} {str(values.dtype).removeprefix('torch.')}"
    n_values = prod(values.shape)
    if n_values == 0 or text.endswith(("object", "complex64", "complex128")) or "<U" in text:
        return text
    if text.endswith("bool"):
        return f"{text}, {int(values.sum()):,} of {n_values:,} true"
    return f"{text} from {float(values.min()):.3g} to {float(values.max()):.3g}"


def _shown_fields(instance: Any) -> list[tuple[str, Any]]:
    """(name, value) of each field of a dataclass that its repr shows."""
    return [(field.name, getattr(instance, field.name)) for field in fields(instance) if field.repr]


def _is_long(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > MAX_NUMBERS and all(isinstance(x, int | float) for x in value)
