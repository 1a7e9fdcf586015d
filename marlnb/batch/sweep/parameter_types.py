"""Types of parameters, from the code of an annotation or a default, without executing it."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

_NAMES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, int, float, str, list, tuple, dict)},
    "List": list,
    "Tuple": tuple,
    "Dict": dict,
    "Sequence": list,
    "Mapping": dict,
}


class _UnknownTypeError(Exception):
    """An annotation that this module cannot read."""


def type_of_annotation(node: ast.expr) -> Any:
    """`int | None`, `list[int]`, `Literal["a", "b"]`, ... as a type; Any for other annotations."""
    try:
        return _type(node)
    except (_UnknownTypeError, SyntaxError, ValueError, IndexError):
        return Any


def type_of_default(value: Any) -> Any:
    """The type of the values that may replace a default: `list[int]` for `[64, 64]`, Any for None."""
    if isinstance(value, list | tuple):
        kinds = {type(item) for item in value}
        if kinds == {int, float}:
            return list[float]
        return list[kinds.pop()] if len(kinds) == 1 and kinds <= {bool, int, float, str} else list  # type: ignore[misc]
    if isinstance(value, Mapping):
        return dict[str, Any]
    return type(value) if isinstance(value, bool | int | float | str) else Any


def _type(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return _type(ast.parse(node.value, mode="eval").body)
        if node.value is None:
            return type(None)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _type(node.left) | _type(node.right)
    if isinstance(node, ast.Subscript):
        return _subscripted(_name(node.value), _parts(node.slice))
    name = _name(node)
    if name in _NAMES:
        return _NAMES[name]
    raise _UnknownTypeError


def _subscripted(name: str, parts: Sequence[ast.expr]) -> Any:
    if name == "Literal":
        return Literal[tuple(ast.literal_eval(part) for part in parts)]
    if name == "Optional":
        return _type(parts[0]) | None
    if name == "Union":
        return functools.reduce(operator.or_, map(_type, parts))
    kind = _NAMES.get(name)
    if kind is tuple:
        ends_open = isinstance(parts[-1], ast.Constant) and parts[-1].value is Ellipsis
        items: list[Any] = [_type(part) for part in (parts[:-1] if ends_open else parts)]
        return tuple.__class_getitem__((*items, ...) if ends_open else tuple(items))
    if kind is list and len(parts) == 1:
        return list[_type(parts[0])]  # type: ignore[misc]
    if kind is dict and len(parts) == 2:
        return dict[str, _type(parts[1])]  # type: ignore[misc]
    raise _UnknownTypeError


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _parts(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]
