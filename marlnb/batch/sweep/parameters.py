"""Parameters of a notebook: read from its cell tagged `parameters` without executing it, and checked beforehand."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.batch.sweep.json_values import plain, shortened
from marlnb.batch.sweep.parameter_types import annotated, inferred
from marlnb.errors import ConfigError, unknown
from marlnb.values import describe, settle

TAG = "parameters"
RUN = "run"  # the parameter that is set to the folder of the job
_TYPE_COMMENT = re.compile(r"type:\s*(\S+)\s*(.*)")


@dataclass(frozen=True)
class Parameter:
    """A name that the cell of parameters assigns.

    Attributes:
        code: the default as it is written; empty where there is only an annotation and a value has to be given.
        help: the comment behind it, else the comment lines right above it.
        kind: the type of its values, from the annotation, else from the default where that is a literal; Any: unknown.
        default: the default's value where it is a literal, else None.
        is_literal: whether `default` is known.
    """

    name: str
    code: str
    help: str = ""
    kind: Any = Any
    default: Any = None
    is_literal: bool = False

    @property
    def takes(self) -> str:
        """What it takes, in words: "a whole number"; "anything" where its type is not known."""
        return "anything" if self.kind is Any else describe(self.kind)

    @property
    def is_required(self) -> bool:
        return not self.code

    def check(self, value: Any) -> Any:
        """The value as plain JSON in the form that the parameter takes: 3.0 becomes 3 for a whole number.

        Raises:
            ConfigError: it is not what the parameter takes; the message names the parameter, what it takes, the value.
        """
        path = f"parameter {self.name!r}"
        given = plain(value, path)
        try:
            return plain(settle(given, self.kind, path, field()), path)
        except (ConfigError, OverflowError) as error:
            raise ConfigError(f"{shortened(str(error), 400)}{self._hint(given)}") from error

    def _hint(self, given: Any) -> str:
        default = f" (its default is {shortened(self.code, 60)})" if self.code else ""
        if self.kind is str and given is not None:
            text = json.dumps(given if isinstance(given, str) else json.dumps(given), ensure_ascii=False)
            return f"{default}; a text that looks like something else is quoted twice: -p '{self.name}={text}'"
        if self.kind is int and isinstance(given, float):
            return f"{default}; a default written as {self.default}.0 would take any number"
        return default


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, in its order; empty when no cell has the tag.

    Raises:
        ConfigError: no such notebook, it cannot be read, or its parameters are not Python.
    """
    cell = _tagged_cell(notebook)
    if cell is None:
        return {}
    source = _without_magics(cell)
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise ConfigError(
            f"{notebook}: the cell tagged `{TAG}` cannot be read: line {error.lineno}: {error.msg}"
        ) from error
    comments = _comments(source)
    return {found.name: found for node in body for found in _assigned(node, source, comments)}


def check_parameters(notebook: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values for a notebook's parameters, as plain JSON.

    Raises:
        ConfigError: as `read_parameters`; a name that it does not have, a value that is not what one takes.
    """
    have = read_parameters(notebook)
    return {name: known(have, name, notebook).check(value) for name, value in given.items()}


def checked_parameters(notebook: Path, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """As `check_parameters`; the folder is added as `run` where the notebook has such a parameter and none is given."""
    have = read_parameters(notebook)
    values = {name: known(have, name, notebook).check(value) for name, value in given.items()}
    return {RUN: str(folder), **values} if RUN in have else values


def known(have: Mapping[str, Parameter], name: str, notebook: Path) -> Parameter:
    """Raises ConfigError, with the nearest, for a parameter that the notebook does not have."""
    if name in have:
        return have[name]
    hint = "" if have else f": no cell of it has the tag `{TAG}`"
    raise ConfigError(unknown(f"parameter of {notebook.name}", name, have) + hint)


def parse_parameters(texts: Sequence[str], *, option: str = "-p") -> dict[str, Any]:
    """`["seed=1", "name=abc"]` -> `{"seed": 1, "name": "abc"}`: JSON where it is JSON, text otherwise.

    Raises:
        ConfigError: one has no `=`, or a name is given twice.
    """
    found: dict[str, Any] = {}
    for name, value in named(texts, option):
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def named(texts: Sequence[str], option: str = "-p") -> Iterator[tuple[str, str]]:
    """Name and value of each `name=value`; raises as `parse_parameters`."""
    seen = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} takes key=value; got {shortened(repr(text))}")
        if name in seen:
            several = f"; several values are written {name}=1,2" if option == "-p" else ""
            raise ConfigError(f"{option} {name}= is given twice{several}")
        seen.add(name)
        yield name, value


def _tagged_cell(notebook: Path) -> str | None:
    """The code of the first cell with the tag, as papermill finds it."""
    if not notebook.is_file():
        raise ConfigError(f"no notebook at {notebook}")
    try:
        data = json.loads(notebook.read_text(encoding="utf-8"))
        language = data["metadata"].get("kernelspec", {}).get("language", "python")
        cells = [cell["source"] for cell in data["cells"] if TAG in cell["metadata"].get("tags", [])]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{notebook} cannot be read as a notebook of format 4: {type(error).__name__}: {error}"
        ) from error
    if cells and str(language).lower() not in ("python", "ipython", ""):
        raise ConfigError(f"{notebook}: parameters can be read of notebooks in Python; this one is in {language}")
    return "".join(cells[0]) if cells else None


def _without_magics(source: str) -> str:
    """The code as Python sees it: `%matplotlib inline` and its like made calls."""
    if not re.search(r"^\s*[%!?]", source, re.MULTILINE):
        return source
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)


def _assigned(node: ast.stmt, source: str, comments: Mapping[int, tuple[bool, str]]) -> Iterator[Parameter]:
    """The parameters that one statement assigns: `a = 1`, `a: int = 1`, `a = b = 1`, `a, b = 1, 2`."""
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return
    text = _help(node, comments)
    told = _TYPE_COMMENT.fullmatch(text) if annotation is None else None
    if told is not None:
        annotation, text = ast.Constant(told[1]), told[2]
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for name, value in _names(target, node.value):
            yield _parameter(name, value, annotation, text, source)


def _names(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for left, right in zip(target.elts, value.elts, strict=True):
            yield from _names(left, right)


def _parameter(name: str, value: ast.expr | None, annotation: ast.expr | None, text: str, source: str) -> Parameter:
    code = "" if value is None else ast.get_source_segment(source, value) or ast.unparse(value)
    try:
        default, is_literal = (None, False) if value is None else (ast.literal_eval(value), True)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        default, is_literal = None, False
    kind = annotated(annotation) if annotation is not None else inferred(default) if is_literal else Any
    return Parameter(name, code, text, kind, default, is_literal)


def _help(node: ast.stmt, comments: Mapping[int, tuple[bool, str]]) -> str:
    """The comment on the statement's last line, else those on the lines right above it."""
    last = node.end_lineno or node.lineno
    if last in comments:
        return comments[last][1]
    above = []
    line = node.lineno - 1
    while line in comments and comments[line][0]:
        above.append(comments[line][1])
        line -= 1
    return " ".join(reversed(above))


def _comments(source: str) -> dict[int, tuple[bool, str]]:
    """Of each line with a comment: whether nothing else is on it, and the comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: (not token.line[: token.start[1]].strip(), token.string.lstrip("#").strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    }
