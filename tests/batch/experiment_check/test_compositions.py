"""Compositions of notebooks: followed from the parameters without executing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.experiment_check.check import _read_cells
from marlnb.batch.experiment_check.compositions import UnknownText, find_compositions

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


def overrides(source: str, **values: Any) -> list[Any]:
    """The overrides of each composition in one cell after the parameters `a = 1` and `names = ["x", "y"]`."""
    cells = [(1, 'a = 1\nnames = ["x", "y"]'), (2, source)]
    return [each.overrides for each in find_compositions(cells, values, after=1)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('mnb.Experiment.compose("env=e", f"seed={a}")', [("env=e", "seed=1")]),
        ('words = ["env=e"]\nwords.append(f"n={a:03}")\nExperiment.compose(*words)', [("env=e", "n=001")]),
        (
            'for name in names:\n    mnb.train(mnb.Experiment.compose(f"algorithm={name}"))',
            [("algorithm=x",), ("algorithm=y",)],
        ),
        ('def make(name, k=2):\n    return Experiment.compose(name, f"k={k * 3}")\nmake(names[-1])', [("y", "k=6")]),
        ('runs = [Experiment.compose(n) for n in names if n != "x"]', [("y",)]),
        ('Experiment.compose("env=e" if a == 1 else "env=f")', [("env=e",)]),
        ('if a > 5:\n    Experiment.compose("x")\nelse:\n    Experiment.compose("y")', [("y",)]),
        ('options = {"lr": 1e-3}\nExperiment.compose(*[f"{k}={v}" for k, v in options.items()])', [("lr=0.001",)]),
        ('panel = await widgets.TrainingPanel(Experiment.compose("z")).train()', [("z",)]),
    ],
)
def test_what_a_cell_composes(source: str, expected: list[tuple[str, ...]]) -> None:
    assert overrides(source) == expected


def test_parameters_replace_the_defaults() -> None:
    assert overrides('Experiment.compose(f"seed={a}")', a=7) == [("seed=7",)]


def test_what_only_the_job_knows_is_unknown() -> None:
    assert overrides('x = train()\nExperiment.compose("env=e", f"lr={x}")') == [("env=e", UnknownText("lr="))]
    source = 'if found():\n    Experiment.compose("a")\ntry:\n    Experiment.compose("b")\nexcept Error:\n    pass'
    assert [each.certain for each in find_compositions([(1, source)], {}, 0)] == [False, False]


def test_nothing_is_executed_and_nothing_runs_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "made"
    overrides(f"open({str(file)!r}, 'w')\n__import__('os').system('touch {file}')")
    assert not file.exists()
    huge = "x = 'a' * 10**12\ny = [0] * 10**9\nwhile True:\n    pass\nfor i in range(10**9):\n    pass"
    assert overrides(f'{huge}\nExperiment.compose("e")') == [("e",)]
    assert overrides('def f():\n    return f()\nf()\nExperiment.compose("e")') == [("e",)]


@pytest.mark.parametrize(("name", "n"), [("quickstart", 1), ("choose_and_compare", 12), ("own_environments", 7)])
def test_the_notebooks_compositions_are_followed(name: str, n: int) -> None:
    cells, parameters = _read_cells(NOTEBOOKS / f"{name}.ipynb")
    compositions = find_compositions(cells, {}, parameters)
    assert len(compositions) == n and all(each.complete for each in compositions)
    assert json.dumps([[word for word in each.overrides if isinstance(word, str)] for each in compositions])
