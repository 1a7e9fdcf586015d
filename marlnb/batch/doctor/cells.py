"""The code cells of a notebook as Python: their calls, texts, imports and environments, without executing them."""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from marlnb.batch.sweep.parameters import read_parameters
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import ConfigError

MAX_TEXTS = 200  # of one f-string whose parameters have many values
_ENV = re.compile(r"env=([\w/.:-]+)")


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        number: counted from 1 over all cells of the notebook, text cells included.
        source: its code, with `%magics` and `!commands`.
    """

    number: int
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree, with magics and shell commands as calls of `get_ipython()`.

        Raises:
            SyntaxError: it is not valid Python.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the user's strings
            return ast.parse(TransformerManager().transform_cell(self.source))

    @property
    def problem(self) -> str:
        """Why it is not valid Python; empty if it is."""
        try:
            _ = self.tree
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        return ""

    @property
    def is_python(self) -> bool:
        return not self.problem

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call, with the dotted name of the function: `mnb.Run.open`; `.open` for a method of a value."""
        for node in ast.walk(self.tree) if self.is_python else ():
            if isinstance(node, ast.Call):
                yield dotted(node.func), node

    def commands(self) -> Iterator[str]:
        """Commands for the shell or a magic: `pip install x` for `!pip install x`, `%pip install x` and `%%bash`."""
        for name, call in self.calls():
            texts = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if name in (".system", ".getoutput") and texts:
                yield texts[0]
            elif name == ".run_line_magic":
                yield " ".join(texts)
            elif name == ".run_cell_magic" and texts[:1] and texts[0] in ("bash", "sh", "script"):
                yield from texts[-1].splitlines()

    def texts(self, values: Mapping[str, tuple[Any, ...]]) -> Iterator[str]:
        """Every string in it; f-strings for each combination of the parameters' values."""
        nodes = list(ast.walk(self.tree)) if self.is_python else []
        inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in inner):
                yield from resolve(node, values)


def read_cells(notebook: Path) -> list[Cell]:
    """The code cells of a notebook.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except (OSError, ValueError, nbformat.reader.NotJSONError, AttributeError) as error:
        raise ConfigError(f"{notebook} is not a readable notebook: {error}") from error
    return [Cell(number, cell.source) for number, cell in enumerate(cells, 1) if cell.cell_type == "code"]


def parameter_values(notebook: Path, sweep: Sweep) -> dict[str, tuple[Any, ...]]:
    """The values of each parameter: those of the sweep, else its default if that is a literal."""
    parameters = read_parameters(notebook)
    values = {name: (parameter.default,) for name, parameter in parameters.items() if parameter.is_literal}
    values.update({name: (value,) for name, value in sweep.fixed.items()})
    values.update({name: tuple(items) for name, items in sweep.axes.items()})
    if "run" in parameters and "run" not in sweep.fixed:
        values.pop("run", None)  # it is set to the job's folder
    return values


def imported_modules(cells: Iterable[Cell]) -> dict[str, int]:
    """Each module that a cell imports, with the first cell's number; not those whose absence is handled."""
    modules: dict[str, int] = {}
    for cell in cells:
        for name in _imports(cell.tree) if cell.is_python else ():
            modules.setdefault(name, cell.number)
    return modules


def named_environments(cells: Iterable[Cell], values: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
    """Each environment that a text `env=...` of a cell names, with the first cell's number."""
    environments: dict[str, int] = {}
    for cell in cells:
        for text in cell.texts(values):
            if match := _ENV.fullmatch(text):
                environments.setdefault(match[1], cell.number)
    return environments


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a dotted name; `.c` for an attribute of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before and not before.startswith(".") else f".{node.attr}"
    return ""


def resolve(node: ast.expr, values: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The strings that an expression can be: a literal, a parameter, or an f-string of parameters; else empty."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name):
        return [value for value in values.get(node.id, ()) if isinstance(value, str)]
    if not isinstance(node, ast.JoinedStr):
        return []
    parts: list[list[str]] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append([str(part.value)])
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id in values:
            parts.append([str(value) for value in values[part.value.id]])
        else:
            return []
    return ["".join(texts) for texts in itertools.islice(itertools.product(*parts), MAX_TEXTS)]


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0 and child.module:
            yield child.module
        elif isinstance(child, ast.Try):  # the body of `try: import x except ImportError:` may fail
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _imports(part)
        else:
            yield from _imports(child)
