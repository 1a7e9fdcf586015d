"""Experiments of notebooks, followed from the parameters without training, reading or writing anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from marlnb.batch.experiment_check.cells import Cell, compile_statements, read_cells
from marlnb.batch.experiment_check.follow import Reached, follow
from marlnb.batch.experiment_check.judge import Judge, Verdict
from marlnb.errors import ConfigError

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


class Listener(Judge):
    """Notes the overrides that it is asked about; "bad" is wrong, and "short" trains nothing."""

    def __init__(self) -> None:
        super().__init__(time_limit_s=1.0)
        self.words: list[tuple[str, ...]] = []

    def verdict(self, overrides: Sequence[str], config_dir: str | None = None) -> Verdict:
        self.words.append(tuple(overrides))
        errors = {word: ConfigError(word) for word in ("bad", "short") if word in overrides}
        return Verdict(errors.get("bad"), training_error=errors.get("short"))


def reached(source: str, **values: object) -> tuple[Reached, list[tuple[str, ...]]]:
    """What one cell composes after the parameters `a = 1` and `names = ["x", "y"]`."""
    judge = Listener()
    parameters = 'a = 1\nnames = ["x", "y"]\nimport marlnb as mnb\nfrom marlnb import Experiment'
    cells = [
        Cell(1, compile_statements(parameters), True),
        Cell(2, compile_statements(source), False),
    ]
    return follow(cells, values, judge), judge.words


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
        ('with open("f") as file:\n    Experiment.compose("z")', [("z",)]),
        ('class Own(mnb.EnvConfig):\n    n: int = 3\n\n\nExperiment.compose("z")', [("z",)]),
        ('match a:\n    case 1:\n        Experiment.compose("z")', [("z",)]),
    ],
)
def test_what_a_cell_composes(source: str, expected: list[tuple[str, ...]]) -> None:
    path, words = reached(source)
    assert words == expected and not path.unknown_cells


def test_parameters_replace_the_defaults() -> None:
    assert reached('Experiment.compose(f"seed={a}")', a=7)[1] == [("seed=7",)]


def test_what_depends_on_a_result_is_skipped_and_what_follows_is_not() -> None:
    loop = """
for name in names:
    run = mnb.train(Experiment.compose(name))
    if run.status()["state"] != "complete":
        raise RuntimeError(run)
    assert run.checkpoints, "none"
    best = max(run.returns) if run.returns else 0
    print(f"{best:.2f}")
"""
    path, words = reached(loop)
    assert words == [("x",), ("y",)] and not path.unknown_cells
    path, words = reached('if found():\n    Experiment.compose("a")\nExperiment.compose("b")')
    assert words == [("b",)] and path.unknown_cells == {2}
    path, words = reached('Experiment.compose("env=e", f"lr={found()}")')
    assert words == [("env=e",)] and not path.unknown_cells  # all but the value
    for source in ('Experiment.compose(f"env={found()}")', 'Experiment.compose("env=e", *found())'):
        path, words = reached(source)
        assert not words and path.unknown_cells == {2}


def test_an_error_that_the_notebook_handles_is_none() -> None:
    path, _ = reached('try:\n    Experiment.compose("bad")\nexcept mnb.ConfigError as error:\n    print(error)')
    assert [each.is_fatal for each in path.compositions] == [False]
    path, words = reached('def make(*words):\n    return Experiment.compose(*words)\nmake("bad")\nmake("good")')
    assert [each.is_fatal for each in path.compositions] == [True, False] and words == [("bad",), ("good",)]


@pytest.mark.parametrize("train", ["mnb.train(base, run)", "for report in mnb.Trainer(base, run):\n    report.frames"])
def test_an_experiment_fails_where_it_is_trained_unless_it_is_changed_before(train: str) -> None:
    composed = 'from dataclasses import replace\nbase = Experiment.compose("short")\n'
    path, _ = reached(composed + train)
    assert [(each.is_fatal, each.is_trained) for each in path.compositions] == [(False, True), (True, True)]
    for changed in ("base = replace(base, frames=9)\n", "base = base.env\n"):
        path, _ = reached(composed + changed + train)
        assert [(each.is_fatal, each.is_trained) for each in path.compositions] == [(False, False)]
    path, _ = reached(f"{composed}try:\n    mnb.start(base)\nexcept mnb.ConfigError:\n    pass")
    assert not any(each.is_fatal for each in path.compositions)


def test_nothing_is_done_and_nothing_runs_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "made"
    reached(f"open({str(file)!r}, 'w')\n__import__('os').system('touch {file}')\nfrom pathlib import Path\n"
            f"Path({str(file)!r}).write_text('x')\nexec('import os')")  # fmt: skip
    assert not file.exists()
    endless = "while True:\n    try:\n        pass\n    except:\n        pass"
    assert reached(f'Experiment.compose("e")\n{endless}\nExperiment.compose("f")')[1] == [("e",)]
    source = 'for i in range(10**9):\n    pass\ndef f():\n    return f()\nf()\nexit()\n1 / 0\nExperiment.compose("e")'
    assert reached(source)[1] == [("e",)]


@pytest.mark.parametrize(("name", "n"), [("quickstart", 1), ("choose_and_compare", 12), ("own_environments", 7)])
def test_the_notebooks_experiments_are_reached(name: str, n: int) -> None:
    path = follow(read_cells(NOTEBOOKS / f"{name}.ipynb"), {}, Judge(time_limit_s=10.0))
    assert len(path.compositions) == n and not path.unknown_cells
