"""Make the students' version of an exercise notebook from the instructor's."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator

import nbformat
from nbformat import NotebookNode

from marlnb.errors import ConfigError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's marks
INSTRUCTOR = "instructor"  # the tag of cells that students do not get
BLANK = "# your answer"
BLANK_TEXT = "*your answer*"  # in a cell of text
_SOLUTION = re.compile(
    r"^(?P<indent>[ \t]*)#+[ \t]*BEGIN SOLUTION[ \t]*\r?\n"
    r"(?P<body>.*?)^[ \t]*#+[ \t]*END SOLUTION[ \t]*(?=\r?$)",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"\b(BEGIN|END)[ \t_-]*SOLUTION", re.IGNORECASE)  # also one that is misspelt

_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # have variables of their own


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
    if mark := _MARK.search(blanked):
        raise ConfigError(
            f"{mark[0]!r} is not part of a pair: each {BEGIN!r} needs an {END!r} below it in the same cell, both on "
            f"lines of their own:\n{source}"
        )
    return blanked


def _blank(match: re.Match[str]) -> str:
    indent, body = match["indent"], textwrap.dedent(match["body"])
    if indent:
        return f"{indent}pass  {BLANK}"
    try:
        names = list(_assigned(ast.parse(body)))
    except SyntaxError as error:
        raise ConfigError(f"a solution must be Python ({error}):\n{body}") from error
    if not names:
        raise ConfigError(f"a solution outside a function must assign the names that the student fills in:\n{body}")
    return "\n".join(f"{name} = ...  {BLANK}" for name in dict.fromkeys(names))


def _assigned(node: ast.AST) -> Iterator[str]:
    """The names that a statement assigns or defines in its own scope, also in the bodies of for, if and with."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _assigned(child)
