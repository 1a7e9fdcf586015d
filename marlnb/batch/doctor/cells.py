"""Cells of a notebook, read as Python: what is called in them and which texts stand there, without executing any."""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from marlnb.batch.sweep.parameters import read_parameters
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.doctor.check import Subject

MOST_TEXTS = 200  # of one formatted text, when its parameters take many values


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        number: counted from 1 over all cells of the notebook, those with text too.
        source: as it stands there, `%magics` and `!commands` included.
    """

    number: int
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its Python, magics and shell commands as calls of `get_ipython()`; raises SyntaxError."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's texts
            return ast.parse(TransformerManager().transform_cell(self.source))

    @property
    def problem(self) -> str:
        """Why it is no Python; empty when it is."""
        try:
            _ = self.tree
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        return ""

    @property
    def is_python(self) -> bool:
        return not self.problem

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call with the dotted name of what is called: `mnb.Run.open`; `.open` where it is called on a value."""
        for node in ast.walk(self.tree) if self.is_python else ():
            if isinstance(node, ast.Call):
                yield dotted(node.func), node

    def commands(self) -> Iterator[str]:
        """What the shell or a magic is given: `pip install x` for `!pip install x`, `%pip install x` and `%%bash`."""
        for name, call in self.calls():
            texts = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if name in (".system", ".getoutput") and texts:
                yield texts[0]
            elif name == ".run_line_magic":
                yield " ".join(texts)
            elif name == ".run_cell_magic" and texts[:1] and texts[0] in ("bash", "sh", "script"):
                yield from texts[-1].splitlines()

    def texts(self, values: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, ast.expr]]:
        """Every text that stands in it, formatted ones with each combination of the parameters' values."""
        inner = {id(part) for node in self._nodes() if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        for node in self._nodes():
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in inner):
                for text in resolve(node, values):
                    yield text, node

    def _nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree)) if self.is_python else []


def read_cells(notebook: Path) -> list[Cell]:
    """Raises ConfigError where it cannot be read."""
    try:
        found = nbformat.read(notebook, as_version=4).cells
    except (OSError, ValueError, nbformat.reader.NotJSONError, AttributeError) as error:
        raise ConfigError(f"{notebook} cannot be read as a notebook: {error}") from error
    return [Cell(number, cell.source) for number, cell in enumerate(found, 1) if cell.cell_type == "code"]


def parameter_values(subject: Subject) -> dict[str, tuple[Any, ...]]:
    """Each parameter's values: the sweep's, else its default where that is a literal."""
    if subject.notebook is None:
        return {}
    parameters = read_parameters(subject.notebook)
    values = {name: (found.default,) for name, found in parameters.items() if found.is_literal}
    values.update({name: (value,) for name, value in subject.sweep.fixed.items()})
    values.update({name: tuple(found) for name, found in subject.sweep.axes.items()})
    if "run" in parameters and "run" not in subject.sweep.fixed:
        values.pop("run", None)  # it becomes the job's own folder
    return values


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a name; `.c` where what stands before it is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before and not before.startswith(".") else f".{node.attr}"
    return ""


def resolve(node: ast.expr, values: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The texts that an expression can be: a literal, a parameter, or an f-string of parameters; [] for all else."""
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
    return ["".join(texts) for texts in itertools.islice(itertools.product(*parts), MOST_TEXTS)]
