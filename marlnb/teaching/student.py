"""Make the students' version of an exercise notebook from the instructor's."""

from __future__ import annotations

import ast
import re
import textwrap

import nbformat
from nbformat import NotebookNode

from marlnb.errors import ConfigError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's marks
INSTRUCTOR = "instructor"  # the tag of cells that students do not get
BLANK = "# your answer"
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
            blanks += BLANK in copy.source
        student.cells.append(copy)
    if not blanks:
        raise ConfigError(f"no cell has a solution between {BEGIN!r} and {END!r}")
    return student


def without_solutions(source: str) -> str:
    """A cell with a blank in place of each solution: `name = ...` for what it assigns, `pass` in a function."""
    blanked = _SOLUTION.sub(_blank, source)
    if BEGIN in blanked or END in blanked:
        raise ConfigError(f"each {BEGIN!r} needs an {END!r} below it in the same cell:\n{source}")
    return blanked


def _blank(match: re.Match[str]) -> str:
    indent, body = match["indent"], textwrap.dedent(match["body"])
    if indent:
        return f"{indent}pass  {BLANK}"
    names = [
        target.id
        for line in ast.parse(body).body
        if isinstance(line, ast.Assign)
        for target in line.targets
        if isinstance(target, ast.Name)
    ]
    if not names:
        raise ConfigError(f"a solution outside a function must assign the names that the student fills in:\n{body}")
    return "\n".join(f"{name} = ...  {BLANK}" for name in names)
