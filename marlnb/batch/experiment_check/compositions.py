"""The `Experiment.compose(...)` calls of a notebook and their overrides, without executing it.

A small interpreter follows the notebook's own rules from its parameters to these calls: assignments, f-strings, lists,
loops, conditions and functions of the notebook. Everything else, such as the result of a training, is unknown, and a
call that depends on it is not judged. Nothing of the notebook is executed.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MAX_STEPS = 20_000  # statements and expressions of one notebook
MAX_DEPTH = 8  # of calls
MAX_SIZE = 1_000  # of a computed list or text, and of a range
MAX_NUMBER = 1e15
COMPOSE = "Experiment.compose"
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_CALLED = (bool, dict, enumerate, float, int, list, range, reversed, set, str, tuple, zip)
_BUILTINS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (*_CALLED, abs, len, max, min, round, sorted, sum)
}
_TEXT_METHODS = ("format", "join", "lower", "removeprefix", "removesuffix", "replace", "split", "strip", "upper")
_LISTING_METHODS = ("copy", "get", "items", "keys", "values")
_CHANGES = ("append", "extend", "insert", "update")


class _Unknown:
    """A value that only the job knows."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class UnknownText:
    """A text of which only the beginning is known: `"frames="` of `f"frames={rows[0]}"`."""

    prefix: str


@dataclass(frozen=True)
class Composition:
    """One call of `Experiment.compose`.

    Attributes:
        cell: the cell's number, counted from 1 over all cells.
        overrides: texts; an UnknownText for each override that only the job knows.
        certain: whether the call is reached for sure, and an error in it would end the job.
        complete: whether every override is there, apart from unknown values.
    """

    cell: int
    overrides: tuple[str | UnknownText, ...]
    certain: bool
    complete: bool = True


@dataclass
class _Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef
    scope: Mapping[str, Any]


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _TooLong(Exception):
    pass


def find_compositions(cells: Sequence[tuple[int, str]], values: Mapping[str, Any], after: int) -> list[Composition]:
    """Every composition that the cells reach with these parameters.

    Args:
        cells: number and code of each code cell, in order.
        values: values of parameters.
        after: number of the cell that holds the defaults; the values replace them after it.
    """
    interpreter = _Interpreter()
    for number, source in cells:
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        interpreter.cell = number
        try:
            interpreter.run(tree.body, interpreter.names)
        except (_Return, RecursionError):
            continue
        except _TooLong:
            break
        if number == after:
            interpreter.names.update(values)
    return interpreter.compositions


class _Interpreter:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.compositions: list[Composition] = []
        self.cell = 0
        self._certain = True
        self._depth = self._steps = 0

    def run(self, statements: Sequence[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in statements:
            self._count()
            handler = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if handler is not None:
                handler(statement, scope)
            else:
                self._visit_parts(statement, scope)

    def value(self, node: ast.expr | None, scope: dict[str, Any]) -> Any:
        """The value of an expression; compositions in it are noted."""
        if node is None:
            return None
        self._count()
        handler = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        if handler is not None:
            return handler(node, scope)
        self._visit_parts(node, scope)
        return UNKNOWN

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooLong

    def _visit_parts(self, node: ast.AST, scope: dict[str, Any]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)
            elif isinstance(child, ast.stmt):
                self.run([child], scope)
            elif not isinstance(child, ast.expr_context | ast.operator | ast.arguments):
                self._visit_parts(child, scope)

    @contextmanager
    def _uncertain(self) -> Iterator[None]:
        """In a part that may not be reached, or whose errors are handled."""
        before, self._certain = self._certain, False
        try:
            yield
        except _Return:
            pass
        finally:
            self._certain = before

    # statements

    def _assign(self, node: ast.Assign, scope: dict[str, Any]) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self._bind(target, value, scope)

    def _annassign(self, node: ast.AnnAssign, scope: dict[str, Any]) -> None:
        if node.value is not None:
            self._bind(node.target, self.value(node.value, scope), scope)

    def _augassign(self, node: ast.AugAssign, scope: dict[str, Any]) -> None:
        loaded: Any = UNKNOWN
        if isinstance(node.target, ast.Name):
            loaded = scope.get(node.target.id, UNKNOWN)
        self._bind(node.target, _binary(node.op, loaded, self.value(node.value, scope)), scope)

    def _for(self, node: ast.For | ast.AsyncFor, scope: dict[str, Any]) -> None:
        items = _items(self.value(node.iter, scope))
        ends_early = any(isinstance(part, ast.Break | ast.Continue) for part in ast.walk(node))
        if items is None or ends_early:
            with self._uncertain():
                for item in [UNKNOWN] if items is None else items:
                    self._bind(node.target, item, scope)
                    self.run(node.body, scope)
        else:
            for item in items:
                self._bind(node.target, item, scope)
                self.run(node.body, scope)
        self.run(node.orelse, scope)

    _asyncfor = _for

    def _while(self, node: ast.While, scope: dict[str, Any]) -> None:
        self.value(node.test, scope)
        with self._uncertain():
            self.run([*node.body, *node.orelse], scope)

    def _if(self, node: ast.If, scope: dict[str, Any]) -> None:
        test = self.value(node.test, scope)
        if _is_known(test):
            return self.run(node.body if test else node.orelse, scope)
        for branch in (node.body, node.orelse):
            with self._uncertain():
                self.run(branch, scope)

    def _try(self, node: ast.Try, scope: dict[str, Any]) -> None:
        with self._uncertain():
            self.run(node.body, scope)
        for handler in node.handlers:
            with self._uncertain():
                self.run(handler.body, scope)
        self.run([*node.orelse, *node.finalbody], scope)

    def _with(self, node: ast.With | ast.AsyncWith, scope: dict[str, Any]) -> None:
        for item in node.items:
            self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, UNKNOWN, scope)
        self.run(node.body, scope)

    _asyncwith = _with

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: dict[str, Any]) -> None:
        scope[node.name] = UNKNOWN if node.decorator_list else _Function(node, scope)

    _asyncfunctiondef = _functiondef

    def _classdef(self, node: ast.ClassDef, scope: dict[str, Any]) -> None:
        scope[node.name] = UNKNOWN

    def _import(self, node: ast.Import | ast.ImportFrom, scope: dict[str, Any]) -> None:
        for alias in node.names:
            scope[(alias.asname or alias.name).partition(".")[0]] = UNKNOWN

    _importfrom = _import

    def _return(self, node: ast.Return, scope: dict[str, Any]) -> None:
        raise _Return(self.value(node.value, scope))

    def _bind(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = _items(value)
            fits = items is not None and len(items) == len(target.elts)
            for k, part in enumerate(target.elts):
                self._bind(part, items[k] if fits and items is not None else UNKNOWN, scope)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, UNKNOWN, scope)
        elif isinstance(target, ast.Subscript):
            owner, key = self.value(target.value, scope), self.value(target.slice, scope)
            if isinstance(owner, dict) and _is_known(key):
                owner[_hashable(key)] = value
            elif isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
                owner[key] = value

    # expressions

    def _value_constant(self, node: ast.Constant, scope: dict[str, Any]) -> Any:
        return node.value

    def _value_name(self, node: ast.Name, scope: dict[str, Any]) -> Any:
        return scope.get(node.id, UNKNOWN)

    def _value_joinedstr(self, node: ast.JoinedStr, scope: dict[str, Any]) -> Any:
        text = ""
        for part in node.values:
            value = self.value(part, scope)
            if not isinstance(value, str):
                return UnknownText(text)
            text += value
        return text

    def _value_formattedvalue(self, node: ast.FormattedValue, scope: dict[str, Any]) -> Any:
        value, form = self.value(node.value, scope), self.value(node.format_spec, scope) or ""
        if not _is_known(value) or not isinstance(form, str):
            return UNKNOWN
        conversions: dict[int, Callable[[Any], Any]] = {114: repr, 115: str, 97: ascii}
        converted = conversions[node.conversion](value) if node.conversion in conversions else value
        return _attempt(format, converted, form)

    def _value_list(self, node: ast.List | ast.Tuple | ast.Set, scope: dict[str, Any]) -> Any:
        items: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                inner = _items(self.value(part.value, scope))
                items += [UNKNOWN] if inner is None else inner
            else:
                items.append(self.value(part, scope))
        return tuple(items) if isinstance(node, ast.Tuple) else items

    _value_tuple = _value_set = _value_list

    def _value_dict(self, node: ast.Dict, scope: dict[str, Any]) -> Any:
        table: dict[Any, Any] = {}
        is_known = True
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                is_known &= isinstance(value, dict)
                table.update(value if isinstance(value, dict) else {})
                continue
            name = self.value(key, scope)
            is_known &= _is_known(name)
            table[_hashable(name)] = value
        return table if is_known else UNKNOWN

    def _value_subscript(self, node: ast.Subscript, scope: dict[str, Any]) -> Any:
        owner, key = self.value(node.value, scope), self.value(node.slice, scope)
        if not isinstance(owner, list | tuple | dict | str) or not _is_known(key):
            return UNKNOWN
        return _attempt(operator.getitem, owner, _hashable(key) if isinstance(owner, dict) else key)

    def _value_slice(self, node: ast.Slice, scope: dict[str, Any]) -> Any:
        parts = [self.value(part, scope) for part in (node.lower, node.upper, node.step)]
        return slice(*parts) if all(map(_is_known, parts)) else UNKNOWN

    def _value_binop(self, node: ast.BinOp, scope: dict[str, Any]) -> Any:
        return _binary(node.op, self.value(node.left, scope), self.value(node.right, scope))

    def _value_unaryop(self, node: ast.UnaryOp, scope: dict[str, Any]) -> Any:
        value = self.value(node.operand, scope)
        if not _is_known(value):
            return UNKNOWN
        operations: dict[type[ast.unaryop], Callable[[Any], Any]] = {
            ast.Not: operator.not_,
            ast.USub: operator.neg,
            ast.UAdd: operator.pos,
        }
        return _attempt(operations.get(type(node.op), operator.invert), value)

    def _value_boolop(self, node: ast.BoolOp, scope: dict[str, Any]) -> Any:
        value: Any = UNKNOWN
        for part in node.values:
            value = self.value(part, scope)
            if not _is_known(value):
                return UNKNOWN
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _value_compare(self, node: ast.Compare, scope: dict[str, Any]) -> Any:
        values = [self.value(part, scope) for part in (node.left, *node.comparators)]
        if not all(map(_is_known, values)):
            return UNKNOWN
        results = (_attempt(_COMPARE[type(o)], *pair) for o, pair in zip(node.ops, itertools.pairwise(values)))
        outcomes = list(results)
        return UNKNOWN if UNKNOWN in outcomes else all(outcomes)

    def _value_ifexp(self, node: ast.IfExp, scope: dict[str, Any]) -> Any:
        test = self.value(node.test, scope)
        if _is_known(test):
            return self.value(node.body if test else node.orelse, scope)
        with self._uncertain():
            self.value(node.body, scope)
            self.value(node.orelse, scope)
        return UNKNOWN

    def _value_listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: dict[str, Any]) -> Any:
        results = [self.value(node.elt, inner) for inner in self._comprehended(node.generators, dict(scope))]
        return UNKNOWN if UNKNOWN in results else results

    _value_generatorexp = _value_setcomp = _value_listcomp

    def _value_dictcomp(self, node: ast.DictComp, scope: dict[str, Any]) -> Any:
        table: dict[Any, Any] = {}
        is_known = True
        for inner in self._comprehended(node.generators, dict(scope)):
            key, value = self.value(node.key, inner), self.value(node.value, inner)
            is_known &= _is_known(key)
            table[_hashable(key)] = value
        return table if is_known else UNKNOWN

    def _comprehended(self, generators: Sequence[ast.comprehension], scope: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The scope of each element; one with unknown targets where the items are unknown."""
        if not generators:
            yield scope
            return
        items = _items(self.value(generators[0].iter, scope))
        for item in [UNKNOWN] if items is None else items:
            self._bind(generators[0].target, item, scope)
            tests = [self.value(test, scope) for test in generators[0].ifs]
            if all(not _is_known(test) or test for test in tests):
                yield from self._comprehended(generators[1:], scope)

    def _value_call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        args = self._value_list(ast.Tuple(node.args, ast.Load()), scope)
        keywords = {item.arg: self.value(item.value, scope) for item in node.keywords}
        if isinstance(node.func, ast.Attribute):
            if _dotted(node.func).endswith(COMPOSE):
                self._note(args)
                return UNKNOWN
            return self._method(node.func, args, scope)
        function = self.value(node.func, scope)
        if isinstance(function, _Function):
            return self._call(function, args, keywords)
        name = node.func.id if isinstance(node.func, ast.Name) and node.func.id not in scope else ""
        if name not in _BUILTINS or keywords or not all(map(_is_known, args)):
            return UNKNOWN
        result = _attempt(_BUILTINS[name], *args)
        return UNKNOWN if isinstance(result, range) and len(result) > MAX_SIZE else result

    def _method(self, func: ast.Attribute, args: tuple[Any, ...], scope: dict[str, Any]) -> Any:
        owner = self.value(func.value, scope)
        known = all(map(_is_known, args))
        if isinstance(owner, str) and func.attr in _TEXT_METHODS and known:
            return _attempt(getattr(owner, func.attr), *args)
        if isinstance(owner, list | dict):
            if func.attr in _LISTING_METHODS and known:
                return _attempt(lambda: getattr(owner, func.attr)(*args))
            if func.attr in _CHANGES and hasattr(owner, func.attr):
                return _attempt(getattr(owner, func.attr), *args)
            if isinstance(func.value, ast.Name):
                scope[func.value.id] = UNKNOWN  # it may have changed in another way
        return UNKNOWN

    def _call(self, function: _Function, args: tuple[Any, ...], keywords: Mapping[str | None, Any]) -> Any:
        arguments = function.node.args
        names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        scope = dict(function.scope) | dict.fromkeys(names, UNKNOWN)
        defaulted = (*arguments.posonlyargs, *arguments.args)[-len(arguments.defaults) or len(names) + 1 :]
        pairs = zip((*defaulted, *arguments.kwonlyargs), (*arguments.defaults, *arguments.kw_defaults))
        scope |= {item.arg: self.value(default, scope) for item, default in pairs if default is not None}
        positional = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
        scope |= dict(zip(positional, args)) | {name: value for name, value in keywords.items() if name in names}
        if arguments.vararg is not None:
            scope[arguments.vararg.arg] = tuple(args[len(positional) :])
        if arguments.kwarg is not None:
            scope[arguments.kwarg.arg] = UNKNOWN
        if self._depth >= MAX_DEPTH:
            return UNKNOWN
        self._depth += 1
        try:
            self.run(function.node.body, scope)
        except _Return as result:
            return result.value
        finally:
            self._depth -= 1
        return None

    def _note(self, args: tuple[Any, ...]) -> None:
        texts = tuple(each for each in args if isinstance(each, str | UnknownText))
        self.compositions.append(Composition(self.cell, texts, self._certain, complete=len(texts) == len(args)))


def _is_known(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_known, value))
    if isinstance(value, dict):
        return all(map(_is_known, value.values()))
    return not isinstance(value, _Unknown | UnknownText | _Function)


def _items(value: Any) -> list[Any] | None:
    """The items of a known iterable, unknown ones among them; None if it is not known."""
    if isinstance(value, _Unknown | UnknownText | _Function):
        return None
    try:
        items = list(itertools.islice(value, MAX_SIZE + 1))
    except TypeError:
        return None
    return items if len(items) <= MAX_SIZE else None


def _binary(kind: ast.operator, left: Any, right: Any) -> Any:
    parts = (left, right)
    if isinstance(kind, ast.Add) and all(isinstance(part, list) for part in parts):
        return [*left, *right]
    if type(kind) not in _BINARY or not all(map(_is_known, parts)):
        return UNKNOWN
    if not all(isinstance(part, int | float) and abs(part) < MAX_NUMBER for part in parts) and (
        not isinstance(kind, ast.Add | ast.Mod) or any(len(str(part)) > MAX_SIZE for part in parts)
    ):
        return UNKNOWN
    return _attempt(_BINARY[type(kind)], left, right)


def _attempt(function: Callable[..., Any], *args: Any) -> Any:
    """The result; unknown if it raises."""
    try:
        return function(*args)
    except Exception:  # a wrong notebook may do anything here, and fails in the job
        return UNKNOWN


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
