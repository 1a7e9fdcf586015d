"""Parameters of a notebook, read from its cell tagged `parameters` without executing it."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from marlnb.batch.sweep.json_values import shorten, to_json_value
from marlnb.batch.sweep.parameter_types import type_of_annotation, type_of_default
from marlnb.errors import ConfigError, unknown
from marlnb.values import check_value, describe

TAG = "parameters"
RUN = "run"  # the parameter that is set to the job's folder
_PYTHON_NUMBER = re.compile(r"[+-]?(?=[._]*\d)[\d._]+([eE][+-]?\d+)?", re.ASCII)
_CONSTANTS = {"none": "null", "true": "true", "false": "false"}
_TYPE_COMMENT = re.compile(r"type:\s*(\S+)\s*(.*)")


@dataclass(frozen=True)
class Parameter:
    """A name that the cell tagged `parameters` assigns.

    Attributes:
        name: the name.
        code: the code of the default; empty for an annotation without a default, which needs a value.
        help: the comment on its line, else the comment lines directly above it.
        kind: the type of its values, from the annotation, else from a literal default; Any if unknown.
        default: the value of a literal default that JSON can express, else None.
        is_literal: whether the default is such a literal; a set is none.
    """

    name: str
    code: str
    help: str = ""
    kind: Any = Any
    default: Any = None
    is_literal: bool = False

    @property
    def takes(self) -> str:
        """The type in words: "a whole number"; "anything" if unknown."""
        return "anything" if self.kind is Any else describe(self.kind)

    @property
    def is_required(self) -> bool:
        return not self.code

    def check(self, value: Any) -> Any:
        """The value as JSON, converted to the parameter's type: 3.0 and "3_000" become whole numbers for one.

        Raises:
            ConfigError: the value does not have the parameter's type; or that is unknown, and the value is a text that
                Python reads as a value, such as "None", "False" or "1_000".
        """
        path = f"parameter {self.name!r}"
        json_value = to_json_value(self._as_number(value), path)
        if self.kind is Any and (json_text := _json_of_python(json_value)):
            default = f" = {shorten(self.code, 60)}" if self.code else ""
            raise ConfigError(
                f"{path}: {json_value!r} would be a text; write {json_value.strip()} as {json_text}: "
                f"-p {self.name}={json_text}. If you want the text, annotate the parameter: {self.name}: "
                f"str | None{default}"
            )
        try:
            return to_json_value(check_value(json_value, self.kind, path, field()), path)
        except (ConfigError, OverflowError) as error:
            raise ConfigError(f"{shorten(str(error), 400)}{self._hint(json_value)}") from error

    @property
    def _kinds(self) -> tuple[Any, ...]:
        """The types of a union, the choices of a Literal, or the only type."""
        return get_args(self.kind) if get_origin(self.kind) in (Union, UnionType, Literal) else (self.kind,)

    def _as_number(self, value: Any) -> Any:
        """Reads numbers in Python's notation, which JSON or YAML read as text: `1_000_000`, `.5`, `1e-3`.

        So where a number is one of several types, as `int | None`, but not where a text is one too.
        """
        is_number = any(kind in (int, float) for kind in self._kinds) and str not in self._kinds
        for read in (int, float) if is_number and isinstance(value, str) else ():
            with suppress(ValueError):
                return read(value)
        return value

    def _hint(self, value: Any) -> str:
        default = f" (its default is {shorten(self.code, 60)})" if self.code else ""
        if (None in self._kinds or type(None) in self._kinds) and _json_of_python(value) == "null":
            return f"{default}; write none as null: -p {self.name}=null"
        if self.kind is str and value is not None:
            text = json.dumps(value if isinstance(value, str) else json.dumps(value), ensure_ascii=False)
            return f"{default}; quote a text that looks like something else twice: -p '{self.name}={text}'"
        if self.kind is int and isinstance(value, float):
            return f"{default}; to accept any number, write the default as {self.default}.0"
        return default


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, in its order; empty if no cell has the tag.

    Raises:
        ConfigError: no such notebook, it cannot be read, or its parameters are not valid Python.
    """
    content = _read(notebook)
    cell = content.tagged_cell
    if cell is None:
        return {}
    if content.language.lower() not in ("python", "ipython", ""):
        problem = "parameters can be read only from notebooks in Python"
        raise ConfigError(f"{notebook} is a notebook in {content.language}; {problem}")
    source = _without_magics(cell)
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        problem = f"the cell tagged `{TAG}` is not valid Python, line {error.lineno}: {error.msg}"
        raise ConfigError(f"{notebook}: {problem}") from error
    comments = _comments(source)
    return {parameter.name: parameter for node in body for parameter in _assigned(node, source, comments)}


def find_kernel(notebook: Path) -> str:
    """The name of a notebook's kernel.

    Raises:
        ConfigError: no such notebook, it cannot be read, or it names no kernel.
    """
    kernel = _read(notebook).kernel
    if not kernel:
        raise ConfigError(f"{notebook} names no kernel; open it in JupyterLab, choose a kernel, and save it")
    return kernel


def job_parameters(notebook: Path, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Values for a notebook's parameters, as JSON; the folder as `run` if it has that parameter and no value is given.

    Raises:
        ConfigError: as `read_parameters`; an unknown parameter, or an invalid value.
    """
    parameters = read_parameters(notebook)
    checked = {name: find_parameter(parameters, name, notebook).check(value) for name, value in values.items()}
    return {RUN: str(folder), **checked} if RUN in parameters else checked


def find_parameter(parameters: Mapping[str, Parameter], name: str, notebook: Path) -> Parameter:
    """The parameter with a name.

    Raises:
        ConfigError: the notebook has no such parameter; the message names similar ones.
    """
    if name in parameters:
        return parameters[name]
    hint = "" if parameters else f": none of its cells has the tag `{TAG}`"
    raise ConfigError(unknown(f"parameter of {notebook.name}", name, parameters) + hint)


def parse_parameters(texts: Sequence[str], *, option: str = "-p") -> dict[str, Any]:
    """`["seed=1", "name=abc"]` -> `{"seed": 1, "name": "abc"}`: values are read as JSON if they are JSON, else as text.

    Raises:
        ConfigError: a text has no `=`, or a duplicate name.
    """
    parameters: dict[str, Any] = {}
    for name, value in split_assignments(texts, option):
        try:
            parameters[name] = json.loads(value)
        except (ValueError, RecursionError):
            parameters[name] = value
    return parameters


def split_assignments(texts: Sequence[str], option: str = "-p") -> Iterator[tuple[str, str]]:
    """The name and the value of each `name=value`; raises as `parse_parameters`."""
    names = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option}: expected NAME=VALUE; got {shorten(repr(text))}")
        if name in names:
            hint = f"; write several values as {name}=1,2" if option == "-p" else ""
            raise ConfigError(f"{option} {name}= is given twice{hint}")
        names.add(name)
        yield name, value


def _json_of_python(value: Any) -> str:
    """How JSON writes what Python reads in a text: `null` for "None", `1000` for "1_000"; empty for other values.

    Empty for "5" or "true" too: without quotes JSON would read these, so they are meant as texts.
    """
    word = value.strip() if isinstance(value, str) else ""
    with suppress(ValueError, RecursionError):
        json.loads(word)
        return ""
    if _PYTHON_NUMBER.fullmatch(word):
        with suppress(SyntaxError, ValueError):
            return json.dumps(ast.literal_eval(word))
    return _CONSTANTS.get(word.lower(), "")


@dataclass(frozen=True)
class _Content:
    """What a notebook's file says.

    Attributes:
        kernel: name of its kernel; empty if it names none.
        language: that of the kernel; Python if it names none.
        tagged_cell: the code of the first cell with the tag, the one that papermill uses; None without one.
    """

    kernel: str
    language: str
    tagged_cell: str | None


def _read(notebook: Path) -> _Content:
    if not notebook.is_file():
        raise ConfigError(f"the notebook {notebook} does not exist")
    try:
        data = json.loads(notebook.read_text(encoding="utf-8"))
        kernelspec = data["metadata"].get("kernelspec", {})
        kernel, language = kernelspec.get("name", ""), kernelspec.get("language", "python")
        cells = ["".join(cell["source"]) for cell in data["cells"] if TAG in cell["metadata"].get("tags", [])]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{notebook} is not a notebook of format 4: {type(error).__name__}: {error}") from error
    return _Content(str(kernel), str(language), cells[0] if cells else None)


def _without_magics(source: str) -> str:
    """The code with magics such as `%matplotlib inline` turned into function calls."""
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
    type_comment = _TYPE_COMMENT.fullmatch(text) if annotation is None else None
    if type_comment is not None:
        annotation, text = ast.Constant(type_comment[1]), type_comment[2]
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
    kind = type_of_annotation(annotation) if annotation is not None else type_of_default(default) if is_literal else Any
    try:
        to_json_value(default, name)
    except ConfigError:
        default, is_literal = None, False
    return Parameter(name, code, text, kind, default, is_literal)


def _help(node: ast.stmt, comments: Mapping[int, tuple[bool, str]]) -> str:
    """The comment on the statement's last line, else the comments on the lines directly above it."""
    last = node.end_lineno or node.lineno
    if last in comments:
        return comments[last][1]
    first = node.lineno
    while comments.get(first - 1, (False, ""))[0]:
        first -= 1
    return " ".join(comments[line][1] for line in range(first, node.lineno))


def _comments(source: str) -> dict[int, tuple[bool, str]]:
    """By line number: whether the comment is alone on its line, and the comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: (not token.line[: token.start[1]].strip(), token.string.lstrip("#").strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    }
