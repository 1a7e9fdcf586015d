"""Make the students' version of an exercise notebook from the instructor's."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable

import nbformat
from nbformat import NotebookNode

from marlnb.errors import ConfigError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's marks
INSTRUCTOR = "instructor"  # the tag of cells that students do not get
BLANK = "# your answer"
BLANK_TEXT = "*your answer*"  # in a cell of text
_SOLUTION = re.compile(rf"^(?P<indent>[ \t]*){BEGIN}\n(?P<body>.*?)^[ \t]*{END}[ \t]*$", re.MULTILINE | re.DOTALL)


def student_version(instructor: NotebookNode) -> NotebookNode:
    """The notebook without solutions, without cells for instructors, and without outputs.

    Raises:
        ConfigError: a mark has no partner, or there is no solution.
    """
    student = nbformat.from_dict({**instructor, "cells": []})  # type: ignore[no-untyped-call]
    blanks = 0
    for cell in instructor.cells:
        if INSTRUCTOR in cell.metadata.get("tags", []):
            continue
        copy = nbformat.from_dict({**cell})  # type: ignore[no-untyped-call]
        if copy.cell_type == "code":
            copy.source = without_solutions(copy.source)
            copy.outputs, copy.execution_count = [], None
        else:
            copy.source = _replaced(copy.source, lambda match: f"{match['indent']}{BLANK_TEXT}")
        blanks += copy.source != cell.source
        student.cells.append(copy)
    if not blanks:
        raise ConfigError(f"no cell has a solution between {BEGIN!r} and {END!r}")
    return student


def without_solutions(source: str) -> str:
    """A cell with a blank in place of each solution: `name = ...` for what it assigns, `pass` in a function."""
    return _replaced(source, _blank)


def _replaced(source: str, blank: Callable[[re.Match[str]], str]) -> str:
    blanked = _SOLUTION.sub(blank, source)
    if BEGIN in blanked or END in blanked:
        raise ConfigError(f"each {BEGIN!r} needs an {END!r} below it in the same cell:\n{source}")
    return blanked


def _blank(match: re.Match[str]) -> str:
    indent, body = match["indent"], textwrap.dedent(match["body"])
    if indent:
        return f"{indent}pass  {BLANK}"
    try:
        names = [name for line in ast.parse(body).body for name in _assigned(line)]
    except SyntaxError as error:
        raise ConfigError(f"a solution must be Python ({error}):\n{body}") from error
    if not names:
        raise ConfigError(f"a solution outside a function must assign the names that the student fills in:\n{body}")
    return "\n".join(f"{name} = ...  {BLANK}" for name in dict.fromkeys(names))


def _assigned(line: ast.stmt) -> list[str]:
    """The names that a line assigns or defines."""
    if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [line.name]
    targets = line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
    nodes = [node for target in targets for node in ast.walk(target)]
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
