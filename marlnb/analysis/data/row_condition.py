"""`rows=`: choose the rows of an analysis by a condition on labels, fields, observed features and time."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import reduce

import numpy as np

from marlnb.analysis.data.labels import Labels, resolve_label
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError

Condition = str | np.ndarray
"""Such as "goal == 'red' and 3 <= t < 10", or a bool array `[row]` or `[row, agent]` of all rows of the recording."""

COMPARISONS: dict[type[ast.cmpop], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type[ast.operator], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
VALID = "valid are names, numbers, 'words', ==, !=, <, <=, >, >=, in, +, -, *, /, %, and, or, not"


def rows_name(condition: Condition | None) -> str:
    """The condition in words; empty: none."""
    return condition if isinstance(condition, str) else "" if condition is None else "a bool array"


def rows_note(name: str) -> tuple[str, ...]:
    """What a reader of a result must know where a condition chose its rows; `name` as `rows_name` returns it."""
    return (f"rows={name!r}: other rows do not count",) if name else ()


def rows_where(source: RowSource, rows: Rows, condition: Condition | None) -> np.ndarray:
    """Which rows of which agents meet the condition, `[row, agent of the group]` bool; None: all.

    A row without a value for a name of the condition does not meet it.

    Raises:
        AnalysisError: an unknown name (the message suggests the nearest), an expression that is not a condition, an
            array of another shape, or no row that meets the condition.
    """
    shape = (len(rows), source.env.group(source.group).n_agents)
    if condition is None:
        return np.ones(shape, bool)
    if isinstance(condition, str):
        selected = _Evaluation(source, rows, condition).selected()
    else:
        selected = _from_array(source, rows, np.ma.filled(condition, False))  # a hidden value selects nothing
    selected = np.broadcast_to(selected, shape)
    if not selected.any():
        raise AnalysisError(f"rows={condition!r} selects none of {len(rows)} rows")
    return selected


def _from_array(source: RowSource, rows: Rows, values: np.ndarray) -> np.ndarray:
    if values.dtype != bool or values.ndim not in (1, 2) or len(values) != len(source.recording):
        raise AnalysisError(
            f"rows= is a condition such as \"goal == 'red' and t >= 3\", or a bool array with a value for each of the "
            f"recording's {len(source.recording)} rows; got {values.dtype} {list(values.shape)}"
        )
    selected = values[rows.index]
    return selected[:, None] if selected.ndim == 1 else selected


def _in_one_dtype(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of an array and a constant, the constant as the array would store it: float32(0.3) is not 0.3."""
    return _stored_as(b, a), _stored_as(a, b)


def _stored_as(array: np.ndarray, value: np.ndarray) -> np.ndarray:
    if value.ndim or not array.ndim or array.dtype.kind != "f" or value.dtype.kind not in "if":
        return value
    with np.errstate(over="ignore"):  # beyond every number of the array's type: infinity
        return value.astype(array.dtype)


class _Evaluation:
    """One condition on one group's rows: a walk over its syntax tree, so that no code of the text is run.

    Attributes:
        known: `[row, agent]` bool, where every name so far has a value.
        classes: the labels so far whose values have names, by name.
    """

    def __init__(self, source: RowSource, rows: Rows, condition: str) -> None:
        self.source, self.rows, self.condition = source, rows, condition
        self.known: np.ndarray = np.ones((len(rows), 1), bool)
        self.classes: dict[str, Labels] = {}

    def selected(self) -> np.ndarray:
        try:
            tree = ast.parse(self.condition, mode="eval")
        except SyntaxError as error:
            raise AnalysisError(f"rows={self.condition!r} is not a valid condition: {error.msg}; {VALID}") from error
        selected = self._value(tree.body)
        if selected.dtype != bool:
            raise AnalysisError(f"rows={self.condition!r} gives {selected.dtype}, not true or false; {VALID}")
        return selected & self.known

    def _value(self, node: ast.expr) -> np.ndarray:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return np.asarray(value)
            case ast.Name(id=name):
                return self._named(name)
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return np.asarray(reduce(join, [self._truth(value) for value in values]))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self._truth(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return np.asarray(-self._value(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return np.asarray(ARITHMETIC[type(op)](*_in_one_dtype(self._value(left), self._value(right))))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [left, *comparators]
                pairs = zip(sides, ops, comparators)
                return np.asarray(reduce(np.logical_and, [self._compare(*pair) for pair in pairs]))
        raise AnalysisError(f"rows={self.condition!r}: {ast.unparse(node)!r} is not supported; {VALID}")

    def _truth(self, node: ast.expr) -> np.ndarray:
        value = self._value(node)
        if value.dtype != bool:
            raise AnalysisError(f"rows={self.condition!r}: {ast.unparse(node)!r} is not true or false: compare it")
        return value

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> np.ndarray:
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            matches = [self._compare(left, ast.Eq(), item) for item in right.elts]
            inside = np.asarray(reduce(np.logical_or, matches, np.zeros((1, 1), bool)))
            return ~inside if isinstance(op, ast.NotIn) else inside
        if type(op) not in COMPARISONS:
            raise AnalysisError(f"rows={self.condition!r}: 'in' needs values in brackets; {VALID}")
        a, b = self._value(left), self._value(right)
        if (a.dtype.kind == "U") != (b.dtype.kind == "U"):
            words, numbers = (left, right) if a.dtype.kind == "U" else (right, left)
            raise AnalysisError(
                f"rows={self.condition!r} compares {ast.unparse(words)} (words) with {ast.unparse(numbers)} (numbers)"
                + self._class_help(words, numbers)
            )
        for word, label in ((a, right), (b, left)):
            if word.dtype.kind == "U" and word.ndim == 0 and isinstance(label, ast.Name):
                names = list(self.classes[label.id].class_names)
                if str(word) not in names:
                    raise AnalysisError(
                        f"rows={self.condition!r}: {label.id} has no class {str(word)!r}; valid: {names}"
                    )
        return COMPARISONS[type(op)](*_in_one_dtype(a, b))

    def _class_help(self, *nodes: ast.expr) -> str:
        labels = [self.classes[node.id] for node in nodes if isinstance(node, ast.Name) and node.id in self.classes]
        return "".join(f"; the classes of {label.name} are {list(label.class_names)}" for label in labels)

    def _named(self, name: str) -> np.ndarray:
        """A label, field or feature by its name `[row, agent]`; words where its values have names."""
        label = resolve_label(self.source, self.rows, name)
        self.known = self.known & label.known
        if not label.class_names:
            return label.values
        self.classes[name] = label
        n_classes = len(label.class_names)
        return np.asarray(label.class_names)[np.clip(label.values.astype(int), 0, n_classes - 1)]
