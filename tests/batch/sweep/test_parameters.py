"""Parameters are read from a notebook without executing it, and values are checked against them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.sweep.parameters import job_parameters, parse_parameters, read_parameters
from marlnb.errors import ConfigError

CELL = """
import os
%matplotlib inline

run = "runs/x"  # where: a "#" in a comment, too
# how fast it
# learns
lr = 1e-3
steps: int = 10 * 1000  # not a literal, but annotated
derived = os.cpu_count()
hidden = [64, 64]  # units of each layer
pair: tuple[int, float] = (1, 2.5)
text = "# no comment"
name: str | None = None
mode: Literal["fast", "slow"] = "fast"
level: Literal[1, 2] = 1
extra = {
    "a": 1,  # first
}  # a mapping
flag = False
needed: int
a = b = 3
left, right = 1, "x"
old = 5  # type: float as papermill writes it
"""


def notebook(path: Path, cell: str = CELL, **metadata: Any) -> Path:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell, metadata={"tags": ["parameters"]})])
    made.metadata.update(metadata)
    nbformat.write(made, path)
    return path


def test_name_default_type_and_help(tmp_path: Path) -> None:
    parameters = read_parameters(notebook(tmp_path / "a.ipynb"))
    described = {name: (each.code, each.takes, each.help) for name, each in parameters.items()}
    assert described == {
        "run": ('"runs/x"', "a text", 'where: a "#" in a comment, too'),
        "lr": ("1e-3", "a number", "how fast it learns"),
        "steps": ("10 * 1000", "a whole number", "not a literal, but annotated"),
        "derived": ("os.cpu_count()", "anything", ""),
        "hidden": ("[64, 64]", "a list of whole numbers", "units of each layer"),
        "pair": ("(1, 2.5)", "a list", ""),
        "text": ('"# no comment"', "a text", ""),
        "name": ("None", "a text or none", ""),
        "mode": ('"fast"', "'fast' or 'slow'", ""),
        "level": ("1", "1 or 2", ""),
        "extra": ('{\n    "a": 1,  # first\n}', "a mapping", "a mapping"),
        "flag": ("False", "true or false", ""),
        "needed": ("", "a whole number", ""),
        "a": ("3", "a whole number", ""),
        "b": ("3", "a whole number", ""),
        "left": ("1", "a whole number", ""),
        "right": ('"x"', "a text", ""),
        "old": ("5", "a number", "as papermill writes it"),
    }
    assert parameters["hidden"].default == [64, 64] and not parameters["steps"].is_literal
    assert [name for name, each in parameters.items() if each.is_required] == ["needed"]


def test_a_default_that_json_cannot_express_is_its_code(tmp_path: Path) -> None:
    cell = "s = {1, 2}\nt = (1, {2})\nd = {(1, 2): 3}\nn = 1e999\nb = b'x'\nlist_ = (1, 'a')"
    parameters = read_parameters(notebook(tmp_path / "a.ipynb", cell))
    described = [(each.code, each.takes, each.default, each.is_literal) for each in parameters.values()]
    assert described == [
        ("{1, 2}", "anything", None, False),
        ("(1, {2})", "a list", None, False),
        ("{(1, 2): 3}", "a mapping", None, False),
        ("1e999", "a number", None, False),
        ("b'x'", "anything", None, False),
        ("(1, 'a')", "a list", (1, "a"), True),
    ]


def test_reading_executes_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    cell = f"x = open({str(trap)!r}, 'w')\ny: __import__('os').system('touch {trap}') = 1\nz = 1"
    assert list(read_parameters(notebook(tmp_path / "a.ipynb", cell))) == ["x", "y", "z"]
    assert not trap.exists()


@pytest.mark.parametrize(
    ("name", "value", "arrives"),
    [
        ("lr", 1, 1.0),
        ("steps", 1e6, 1_000_000),
        ("hidden", (1, 2, 3), [1, 2, 3]),
        ("pair", [1, 2], [1, 2.0]),
        ("name", None, None),
        ("name", "", ""),
        ("mode", "slow", "slow"),
        ("derived", {"any": [1]}, {"any": [1]}),
        ("flag", True, True),
    ],
)
def test_values_arrive_in_the_form_that_is_taken(tmp_path: Path, name: str, value: Any, arrives: Any) -> None:
    checked = job_parameters(notebook(tmp_path / "a.ipynb"), {name: value}, tmp_path)[name]
    assert json.dumps(checked) == json.dumps(arrives)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", "fast", r"parameter 'lr' must be a number; got 'fast' \(its default is 1e-3\)"),
        ("lr", None, "parameter 'lr' must be a number; got None"),
        ("lr", float("nan"), "parameter 'lr' must be a finite number"),
        ("lr", "Infinity", "parameter 'lr' must be a finite number"),
        ("lr", 10**400, "must be between"),
        ("a", 0.5, r"must be a whole number; got 0\.5 \(its default is 3\); .* write the default as 3\.0"),
        ("a", True, "must be a whole number; got True"),
        ("flag", 1, "must be true or false; got 1"),
        ("text", 5, """must be a text; got 5 .*; quote a text that looks .* twice: -p 'text="5"'"""),
        ("text", None, "must be a text; got None"),
        ("hidden", 64, "must be a list of whole numbers; got 64"),
        ("hidden", [64, "x"], r"parameter 'hidden'\[1\] must be a whole number; got 'x'"),
        ("extra", [1], "must be a mapping"),
        ("mode", "slwo", "no choice 'slwo'; did you mean 'slow'"),
        ("level", "1", "parameter 'level' must be 1 or 2; got '1'"),
        ("lerning", 1, r"no parameter 'lerning' of a\.ipynb"),
        ("hiden", 1, "did you mean 'hidden'"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job_parameters(notebook(tmp_path / "a.ipynb"), {name: value}, tmp_path)


def test_a_long_wrong_value_makes_no_long_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        job_parameters(notebook(tmp_path / "a.ipynb"), {"lr": "x" * 1_000_000}, tmp_path)
    assert len(str(caught.value)) < 600 and "must be a number" in str(caught.value)


def test_notebooks_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 1: "):
        read_parameters(notebook(tmp_path / "a.ipynb", "x = = 1"))
    with pytest.raises(ConfigError, match="is a notebook in R"):
        read_parameters(notebook(tmp_path / "b.ipynb", "x <- 1", kernelspec={"name": "ir", "language": "R"}))
    (tmp_path / "c.ipynb").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a notebook of format 4"):
        read_parameters(tmp_path / "c.ipynb")
    empty = tmp_path / "d.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")]), empty)
    assert read_parameters(empty) == {}
    with pytest.raises(ConfigError, match="none of its cells has the tag `parameters`"):
        job_parameters(empty, {"x": 1}, tmp_path)


def test_values_of_one_execution() -> None:
    assert parse_parameters(["a=1", "b=x=y", "c=", 'd="1"']) == {"a": 1, "b": "x=y", "c": "", "d": "1"}
    with pytest.raises(ConfigError, match=r"-p a= is given twice; write several values as a=1,2"):
        parse_parameters(["a=1", "a=2"])
    with pytest.raises(ConfigError, match="--set: expected NAME=VALUE; got 'cores'"):
        parse_parameters(["cores"], option="--set")
