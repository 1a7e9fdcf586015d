"""The grammar of `-p`, of files and of Python: what is one value and what is several."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marlnb.batch.sweep.grammar import make_sweep, values_of_file, values_of_python, values_of_texts
from marlnb.batch.sweep.parameters import job_parameters, parse_parameters
from marlnb.errors import BatchError, ConfigError
from tests.batch.sweep.test_parameters import notebook


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("mappo,ippo", ["mappo", "ippo"]),
        ("mappo, ippo", ["mappo", "ippo"]),
        ("0..4", [0, 1, 2, 3, 4]),
        ("0..8..2", [0, 2, 4, 6, 8]),
        ("0..7..2", [0, 2, 4, 6]),
        ("-2..1", [-2, -1, 0, 1]),
        ("3..1..-1", [3, 2, 1]),
        ("5..5", [5]),
        ("0..2,7,1e-3", [0, 1, 2, 7, 0.001]),
        ("[64,64],[128]", [[64, 64], [128]]),
        ('"a,b","c"', ["a,b", "c"]),
        ('"a,b",c', ["a,b", "c"]),
        ("true,false,null", [True, False, None]),
        ("1.5.2,1..x", ["1.5.2", "1..x"]),
    ],
)
def test_axes(text: str, values: list[Any]) -> None:
    parsed = values_of_texts([f"x={text}"])["x"]
    assert parsed.is_axis and json.dumps(parsed.items) == json.dumps(values)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mappo", "mappo"),
        ("3", 3),
        ("[64,64]", [64, 64]),
        (' {"a": [1, 2]} ', {"a": [1, 2]}),
        ('"a,b"', "a,b"),
        ('"0..4"', "0..4"),
        ('""', ""),
        ("", ""),
        (" leading and trailing ", " leading and trailing "),
        ("a=b", "a=b"),
        ("../x", "../x"),
        ("-x", "-x"),
        ("$(touch pwned); `id` 'q' it\"s\n🎉", "$(touch pwned); `id` 'q' it\"s\n🎉"),
    ],
)
def test_one_value(text: str, value: Any) -> None:
    parsed = values_of_texts([f"x={text}"])["x"]
    assert not parsed.is_axis and json.dumps(parsed.items) == json.dumps([value])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["x"], "-p: expected NAME=VALUE; got 'x'"),
        (["=1"], "-p: expected NAME=VALUE"),
        (["x=1", "x=2"], "-p x= is given twice; write several values as x=1,2"),
        (["x=a,,b"], "no value between two commas"),
        (["x=a,"], 'write "" for an empty text'),
        (["x=4..0"], r"x=4\.\.0: the range is empty"),
        (["x=0..4..0"], "the range is empty"),
        (["x=0..999999999999"], "more than 100,000 values"),
        (["x=[relu,tanh]"], r"expected JSON; got .* Quote texts in a list, e.g. '\[\"relu\",\"tanh\"\]'"),
        (['x="a'], 'quote a text that starts with "'),
        (["x=[1] [2]"], r"followed by '\[2\]'"),
    ],
)
def test_what_cannot_be_meant_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        values_of_texts(texts)


def test_python_and_files_agree(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text('seed: [0, 1]\nhidden: [[64, 64]]\nname: "a,b; $(x)"\nlr: 1e-3\n', encoding="utf-8")
    of_file = values_of_file(file)
    of_python = values_of_python({"seed": range(2), "hidden": [[64, 64]], "name": "a,b; $(x)", "lr": 1e-3})
    source = notebook(tmp_path / "a.ipynb", 'seed = 0\nhidden = [1]\nname = ""\nlr = 1.0')
    assert make_sweep(source, of_file).to_json() == make_sweep(source, of_python).to_json()
    swept = make_sweep(source, of_file)
    assert swept.axes == {"seed": (0, 1), "hidden": ([64, 64],)}
    assert swept.fixed == {"name": "a,b; $(x)", "lr": 0.001}
    assert values_of_python({"seed": np.arange(2)}) == values_of_python({"seed": (0, 1)})
    assert not values_of_python({"seed": np.float32(2)})["seed"].is_axis


def test_files_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    for text, message in [
        ("seed: 1\nseed: 2\n", "'seed' is given twice"),
        ("- 1\n", "expected names of parameters with values"),
        ("a: [\n", "cannot be read"),
        ("a: !!python/object/apply:os.system ['touch pwned']\n", "cannot be read"),
    ]:
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            values_of_file(file)
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        values_of_file(tmp_path / "none.yaml")


def test_a_sweep_is_checked_against_the_notebook(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", 'run = ""\nseed = 0\nlr = 1.0\nneeded: int')

    def sweep(*texts: str) -> Any:
        return make_sweep(source, values_of_texts(texts))

    made = sweep("seed=1_000,2", "lr=.5", "needed=1")
    assert made.axes == {"seed": (1000, 2)} and made.fixed == {"lr": 0.5, "needed": 1}
    for texts, error, message in [
        (["seed=0"], ConfigError, r"a\.ipynb needs a value for needed"),
        (["needed=1", "run=x"], ConfigError, "'run' cannot be given"),
        (["needed=1", "sed=1"], ConfigError, "did you mean 'seed'"),
        (["needed=1", "seed=1,x"], ConfigError, "parameter 'seed' must be a whole number; got 'x'"),
        (["needed=1", "lr=NaN"], ConfigError, "finite"),
        (["needed=1", "lr=1,1.0"], BatchError, "'lr': 1.0 given twice"),
        (["needed=1", "seed=0..999", "lr=0..999"], BatchError, "1,000,000 jobs; a batch has at most 100,000"),
    ]:
        with pytest.raises(error, match=message):
            sweep(*texts)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int | None", "1_000_000", 1_000_000),
        ("int | None", "1e3", 1000),
        ("int | None", "null", None),
        ("Optional[float]", ".5", 0.5),
        ("float | Literal['auto']", "1_0.5", 10.5),
        ("float | Literal['auto']", "auto", "auto"),
        ("int | str", "1_000", "1_000"),  # a text that is meant as such
    ],
)
def test_numbers_where_the_annotation_has_several_types(tmp_path: Path, kind: str, text: str, value: object) -> None:
    source = notebook(tmp_path / "a.ipynb", f'run = ""\nx: {kind} = None')
    assert make_sweep(source, values_of_texts([f"x={text}"])).fixed == {"x": value}
    executed = job_parameters(source, parse_parameters([f"x={text}"]), tmp_path / "job")
    assert executed == {"run": str(tmp_path / "job"), "x": value}


@pytest.mark.parametrize(
    ("code", "text", "message"),
    [
        ("x: int | None = None", "none", "must be a whole number; got 'none' .*; write none as null: -p x=null"),
        ("x: float | None = 1.0", "None", "got 'None' .*; write none as null: -p x=null"),
        (
            "x = None",
            "none",
            "'none' would be a text; write none as null: -p x=null.* annotate .* x: str | None = None",
        ),
        ("x = 2**10", "None", "'None' would be a text; write None as null: -p x=null.* annotate .* x: str | None = 2"),
        (
            "x: Literal[1, 2, None] = 1",
            "none",
            r"no choice 'none'.* \(its default is 1\); write none as null: -p x=null",
        ),
        ("x: Literal[1, 2, None] = 1", "None", "must be 1 or 2 or None; got 'None' .*; write none as null: -p x=null"),
    ],
)
def test_none_is_written_as_null(tmp_path: Path, code: str, text: str, message: str) -> None:
    source = notebook(tmp_path / "a.ipynb", f'run = ""\n{code}')
    with pytest.raises(ConfigError, match=message.replace("|", r"\|")):
        make_sweep(source, values_of_texts([f"x={text}"]))
    assert make_sweep(source, values_of_texts(["x=null"])).fixed == {"x": None}


@pytest.mark.parametrize("code", ["x = None", "x = 2**10", "x: Path = None", "x = b''"])
@pytest.mark.parametrize(
    ("text", "json_text"),
    [
        *(("False", "false"), ("TRUE", "true"), (" None", "null")),
        *(("1_000", "1000"), (".5", "0.5"), ("-1_0.5e-1", "-1.05"), ("+3", "3"), ("2.", "2.0")),
    ],
)
def test_what_python_reads_is_no_text_where_the_type_is_unknown(
    tmp_path: Path, code: str, text: str, json_text: str
) -> None:
    source = notebook(tmp_path / "a.ipynb", f'run = ""\n{code}')
    message = (
        rf"'{re.escape(text)}' would be a text; write {re.escape(text.strip())} as {json_text}: -p x={json_text}\."
    )
    with pytest.raises(ConfigError, match=message):
        make_sweep(source, values_of_texts([f"x={text}"]))
    with pytest.raises(ConfigError, match=message):
        job_parameters(source, parse_parameters([f"x={text}"]), tmp_path / "job")
    assert make_sweep(source, values_of_texts([f"x={json_text}"])).fixed == {"x": json.loads(json_text)}


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "1e-3",
        "true",
        "null",
        "nan",
        "007",
        "1.2.3",
        "...",
        "1...",
        "_1",
        ".",
        "",
        "Falsehood",
        "0x1f",
        "-",
        "1.5e-1_0",
    ],
)
def test_other_texts_arrive_as_texts(tmp_path: Path, text: str) -> None:
    source = notebook(tmp_path / "a.ipynb", 'run = ""\nx = None')
    assert make_sweep(source, values_of_texts([f"x={json.dumps(text)}"])).fixed == {"x": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-3", 0.001), ("1.5e6", 1.5e6), ("-.5E+2", -50.0), ("3", 3), ("1_000", 1000), ("1.", 1.0)),
        *(('"1e-3"', "1e-3"), ("e5", "e5"), ("1e", "1e"), ("1.2e3.4", "1.2e3.4")),
    ],
)
def test_numbers_in_a_file(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "sweep.yaml").write_text(f"x: {text}\n", encoding="utf-8")
    source = notebook(tmp_path / "a.ipynb", 'run = ""\nx = None')
    assert repr(make_sweep(source, values_of_file(tmp_path / "sweep.yaml")).fixed) == repr({"x": value})
