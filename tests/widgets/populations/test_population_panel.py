"""The population panel without a browser: what it shows, and opening a member in the microscope."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.training.trainer import Trainer
from marlnb.widgets.populations.population_panel import PopulationPanel
from marlnb.widgets.runs.attach import attach
from tests.widgets.trained import text_of, until

SMALL = (
    "env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "model.hidden=[8]", "n_envs=2", "rollout_steps=8",
    "evolution=tournament", "evolution.population=3", "evolution.generation_frames=16", "evaluation_episodes=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(
        Experiment.compose(*SMALL, "frames=900"), tmp_path_factory.mktemp("population") / "run", progress=False
    )


def test_it_shows_the_members_and_what_they_trained_with(run: Run) -> None:
    panel = PopulationPanel(run)
    panel.catch_up()
    population = run.population
    best, text = population.best, text_of(panel._members)
    assert f"the fittest is {best.id}" in text_of(panel._line)
    assert "Fitness is the mean of the last 3 scores." in text_of(panel._line)
    for member in population.members:
        assert member.id in text and f"{member.row.fitness:.4g}" in text
    assert text.index(best.id) < min(text.index(each.id) for each in population.members if each.id != best.id)
    assert list(panel._option.options) == list(best.row.options) and panel._member.value == best.id
    before = panel._schedule.value
    assert "data:image/png" in panel._tree.value and "data:image/png" in before
    panel._option.value = list(best.row.options)[1]
    assert panel._schedule.value != before
    panel.close()


def test_the_fittest_member_opens_in_the_microscope(run: Run) -> None:
    panel = PopulationPanel(run)
    panel.catch_up()
    panel.open_button.click()
    until(lambda: not panel.open_button.disabled, deadline_s=60)
    assert panel.microscope is not None, text_of(panel._about)
    assert list(panel.microscope.view.agents) == ["agent_0", "agent_1", "agent_2"]
    assert run.population.best.id in text_of(panel._about)
    panel.close()


def test_it_follows_a_training_as_a_tab_of_its_run(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL, "frames=900")
    run = Run.create(tmp_path / "run", experiment)
    with Trainer(experiment, run) as trainer:
        next(trainer)
        tabs = attach(run)
        tabs.tabs.selected_index = list(tabs._pages).index("Population")
        panel = tabs.opened["Population"]
        assert isinstance(panel, PopulationPanel)
        panel.catch_up()
        assert "no generation has ended yet" in text_of(panel._line) and panel.open_button.disabled
        for _ in range(5):
            next(trainer)
        panel.catch_up()
        assert "2 generations of 3 members" in text_of(panel._line) and not panel.open_button.disabled
        tabs.close()


def test_runs_without_evolution_have_no_such_tab(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Experiment.compose("env=mpe/simple_spread", "algorithm=ippo"))
    panel = attach(run)
    assert "Population" not in panel._pages
    panel.close()
