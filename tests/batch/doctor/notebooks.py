"""Notebooks and subjects for the doctor's tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat

from marlnb.batch.doctor.check import Finding, checks
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.profile import Profile


def write(path: Path, *cells: str, kernel: str | None = "python3", parameters: str = 'run = "runs/x"') -> Path:
    """A notebook whose cell 1 is text, whose cell 2 holds the parameters; `cells` are numbered from 3."""
    first = [nbformat.v4.new_markdown_cell("# text"), nbformat.v4.new_code_cell(parameters)]
    first[1].metadata["tags"] = ["parameters"]
    existing = nbformat.v4.new_notebook(cells=[*first, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    if kernel is not None:
        existing.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    nbformat.write(existing, path)
    return path


def subject(folder: Path, *cells: str, profile: Profile | None = None, **rest: Any) -> DoctorRequest:
    cwd = folder / "cwd"
    cwd.mkdir(exist_ok=True)
    existing = {"notebook": write(folder / "a.ipynb", *cells), **rest}
    return DoctorRequest(profile or Profile(), folder / "out", cwd, **existing)


def answers(name: str, examined: DoctorRequest) -> list[Finding]:
    return [Finding(name, *answer) for answer in checks()[name](examined)]


def messages(level: str, findings: Iterable[Finding]) -> list[str]:
    """The findings of one level, each with its remedy."""
    return [f"{finding.finding}{os.linesep}{finding.remedy}" for finding in findings if finding.level == level]
