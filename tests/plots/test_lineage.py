"""Figures of a population show the numbers of its lineage."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marlnb import plots
from marlnb.errors import AnalysisError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import train

SMALL = (
    "env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "model.hidden=[8]", "n_envs=2", "rollout_steps=8",
    "evolution=tournament", "evolution.population=3", "evolution.generation_frames=16", "evaluation_episodes=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(Experiment.compose(*SMALL, "frames=900"), tmp_path_factory.mktemp("lineage") / "run", progress=False)


def test_a_dot_for_each_member_and_a_line_to_the_fittest(run: Run) -> None:
    population = run.population
    rows = population.lineage()
    ax = plots.lineage_tree(population)
    dots = np.concatenate([collection.get_offsets() for collection in ax.collections[1:]])
    assert sorted(map(tuple, dots.tolist())) == sorted((row.generation, row.fitness) for row in rows)
    assert len(ax.collections[0].get_segments()) == sum(row.parent is not None for row in rows)
    assert ax.lines[0].get_ydata()[-1] == population.best.row.fitness
    assert len(ax.lines[0].get_xdata()) == rows[-1].generation + 1
    assert all(tick == int(tick) for tick in ax.get_xticks())
    operators = dict.fromkeys(row.operator for row in rows)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["line of the fittest", *operators]


def test_a_member_far_below_all_others_does_not_press_them_together() -> None:
    fitness = [-8.0, -9.0, -46.0, -7.0, -7.5, -53.0, -6.0, -6.5, -8.5]
    rows = [
        SimpleNamespace(id=str(k), parent_id=str(k - 3), generation=k // 3, fitness=value, operator="mutate")
        for k, value in enumerate(fitness)
    ]
    population = SimpleNamespace(
        lineage=lambda: rows, best=SimpleNamespace(id="6"), ancestors=lambda _: [rows[k] for k in (0, 3, 6)]
    )
    ax = plots.lineage_tree(population)  # type: ignore[arg-type]
    assert ax.get_ylim() == pytest.approx((-9.15, -5.85))
    assert ax.get_ylabel() == "fitness\n(2 of 9 members below -9.15 not shown)"
    for row in rows:
        row.fitness = max(row.fitness, -9.0)
    assert plots.lineage_tree(population).get_ylabel() == "fitness"  # type: ignore[arg-type]


def test_the_line_of_an_option_is_the_schedule_of_the_fittest(run: Run) -> None:
    population = run.population
    ax = plots.option_schedules(population, "algorithm.lr")
    ancestors = population.ancestors(population.best.id)
    assert list(ax.lines[0].get_ydata()) == [row.options["algorithm.lr"] for row in ancestors]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["members", "line of the fittest"]
    with pytest.raises(AnalysisError, match=r"did you mean 'algorithm\.lr'"):
        plots.option_schedules(population, "algorithm.lrr")


def test_there_is_nothing_to_draw_before_a_generation_has_ended(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Experiment.compose(*SMALL, "frames=900"))
    with pytest.raises(AnalysisError, match="no generation has ended"):
        plots.lineage_tree(run.population)
