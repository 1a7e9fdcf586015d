"""The students' version of an exercise notebook, made from the instructor's, so that nothing is written twice."""

from __future__ import annotations

import ast
import re
import textwrap

import nbformat
from nbformat import NotebookNode

from marlnb.errors import ConfigError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # as nbgrader marks them
INSTRUCTOR = "instructor"  # the tag of cells that students do not get
BLANK = "# your answer"
_SOLUTION = re.compile(rf"^(?P<indent>[ \t]*){BEGIN}\n(?P<body>.*?)^[ \t]*{END}[ \t]*$", re.MULTILINE | re.DOTALL)


def student_version(instructor: NotebookNode) -> NotebookNode:
    """The notebook without solutions, without the instructor's own cells, and without outputs.

    Raises:
        ConfigError: a mark without its partner, or no solution at all.
    """
    made = nbformat.from_dict({**instructor, "cells": []})  # type: ignore[no-untyped-call]
    blanks = 0
    for cell in instructor.cells:
        if INSTRUCTOR in cell.metadata.get("tags", []):
            continue
        kept = nbformat.from_dict({**cell})  # type: ignore[no-untyped-call]
        if kept.cell_type == "code":
            kept.source = without_solutions(kept.source)
            kept.outputs, kept.execution_count = [], None
            blanks += BLANK in kept.source
        made.cells.append(kept)
    if not blanks:
        raise ConfigError(f"no cell has a solution between {BEGIN!r} and {END!r}")
    return made


def without_solutions(source: str) -> str:
    """A cell with a blank in place of each solution: `name = ...` for what it assigns, `pass` in a function."""
    made = _SOLUTION.sub(_blank, source)
    if BEGIN in made or END in made:
        raise ConfigError(f"each {BEGIN!r} needs an {END!r} below it, in the same cell:\n{source}")
    return made


def _blank(found: re.Match[str]) -> str:
    indent, body = found["indent"], textwrap.dedent(found["body"])
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
        raise ConfigError(f"a solution outside of a function assigns what the student is to fill in:\n{body}")
    return "\n".join(f"{name} = ...  {BLANK}" for name in names)
