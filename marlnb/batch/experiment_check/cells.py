"""The cells of a notebook, compiled so that a statement which depends on a placeholder is skipped."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from marlnb.batch.sweep.parameters import TAG
from marlnb.composition.variants import FOLDER_VARIABLE

STEP, SKIP, UNDECIDED, PLACEHOLDER = "_marlnb_step", "_marlnb_skip", "_marlnb_undecided", "_marlnb_placeholder"
"""Names that compiled cells use."""
INJECTED_TAG = "injected-parameters"  # of the cell in which papermill has written the values of an earlier execution
_MAGIC = re.compile(r"^([ \t]*)[%!?].*$", re.MULTILINE)
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Statement:
    """One statement of a cell.

    Attributes:
        code: compiled; what it contains is skipped where it depends on a placeholder.
        names: that it binds.
        composes: whether a call of `compose` is written in it.
    """

    code: CodeType
    names: tuple[str, ...]
    composes: bool


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        number: counted from 1 over all cells.
        statements: what it executes.
        holds_parameters: whether it is the cell tagged `parameters`.
        may_raise: whether its errors end no job: it is tagged `raises-exception`.
        registers: names that its decorators may register, as that of `@mnb.environment("my/game")`; None for a
            computed one.
        chooses_folder: whether it may choose the folder of variants, since it names that variable of the environment.
    """

    number: int
    statements: tuple[Statement, ...]
    holds_parameters: bool
    may_raise: bool = False
    registers: tuple[str | None, ...] = ()
    chooses_folder: bool = False


def read_cells(notebook: Path) -> list[Cell]:
    """The code cells. Magics, and cells that are no Python, are left out; so are earlier values, which are replaced."""
    cells: list[Cell] = []
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"], 1):
        source = "".join(cell["source"])
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or source.lstrip().startswith("%%") or INJECTED_TAG in tags:
            continue
        holds_parameters = TAG in tags and not any(c.holds_parameters for c in cells)
        chooses_folder = FOLDER_VARIABLE in source
        source = _MAGIC.sub(r"\1pass", source)
        try:
            statements, registers = compile_statements(source), tuple(_registered_names(ast.parse(source)))
        except SyntaxError:
            statements, registers = (), ()
        may_raise = "raises-exception" in tags
        cells.append(Cell(number, statements, holds_parameters, may_raise, registers, chooses_folder))
    return cells


def _registered_names(tree: ast.AST) -> Iterator[str | None]:
    """The first argument of each decorator; None if it is computed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and call.args:
                    name = call.args[0]
                    yield str(name.value) if isinstance(name, ast.Constant) else None


def compile_statements(source: str) -> tuple[Statement, ...]:
    """Raises SyntaxError if the source is no Python."""
    return tuple(_compile(node) for node in ast.parse(source).body)


def _compile(node: ast.stmt) -> Statement:
    names, composes = tuple(_bound_names(node)), _composes(node)
    module = ast.Module([_SkipUndecided().visit(node)], [])
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(ast.fix_missing_locations(module), "notebook", "exec", flags, dont_inherit=True)
    return Statement(code, names, composes)


class _SkipUndecided(ast.NodeTransformer):
    """Counts each statement inside another one, and skips it where it depends on a placeholder.

    The names that it would bind become placeholders, and what it would return a placeholder.
    """

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, [self._skippable(statement) for statement in value])
        return node

    def _skippable(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.Global | ast.Nonlocal):
            return node
        then = f"return {PLACEHOLDER}" if isinstance(node, ast.Return) and node.value else "pass"
        if names := list(_bound_names(node)):
            then = f"{' = '.join(names)} = {PLACEHOLDER}"
        source = f"try:\n {STEP}()\nexcept {UNDECIDED}:\n {SKIP}({_composes(node)})\n {then}"
        (wrapped,) = ast.parse(source).body
        assert isinstance(wrapped, ast.Try)
        wrapped.body.append(node)
        return wrapped


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield from {(node.asname or node.name).partition(".")[0]} - {"*"}
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store) and not node.id.startswith("_marlnb"):
            yield node.id
    elif not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _bound_names(child)


def _composes(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "compose" for part in ast.walk(node))
