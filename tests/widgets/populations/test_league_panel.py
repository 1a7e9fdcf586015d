"""The league panel without a browser: what it shows, opening a snapshot in the microscope, freezing a player."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

import pytest

from marlnb.experiment import Experiment
from marlnb.populations.league.player_log import PlayerEvent, What
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.training.trainer import Trainer
from marlnb.widgets.populations.league_panel import LeaguePanel
from marlnb.widgets.populations.timeline import SnapshotTimeline
from marlnb.widgets.runs.attach import attach
from tests.widgets.trained import text_of, until

RPS = (
    *("env=tests.populations.training.games:RockPaperScissors", "env.steps=2", "league=alphastar", "algorithm=ippo"),
    *("algorithm.epochs=1", "n_envs=4", "rollout_steps=16", "frames=768"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(Experiment.compose(*RPS), tmp_path_factory.mktemp("league") / "rps", progress=False)


def test_tables_and_curves_are_those_of_the_files(run: Run) -> None:
    panel = LeaguePanel(run)
    panel.catch_up()
    league = run.league
    counts = league.counts()["main_0"]
    assert all(f"{n:,}" in text_of(panel._counts) for n in counts.values()) and "self play" in text_of(panel._counts)
    rates = league.summary().win_rates.loc["main_0"].dropna()
    assert all(f"{rate:.2f}" in text_of(panel._payoff) for rate in rates)
    rounds = sorted({match.round for match in league.matches()})
    state = panel.cycles.get_state()["lines"]["cyclic share"]
    assert state[0] == rounds and state[1][-1] == pytest.approx(league.ratings().cycles.share, abs=0.2)
    assert league.ratings().verdict in text_of(panel._line)
    marks = [mark for line in panel.timeline.content["lines"] for mark in line["marks"]]
    dots = [mark["id"] for mark in marks if mark["kind"] == "snapshot"]
    assert sorted(dots) == sorted(each.id for player in league.players.values() for each in player.snapshots)
    panel.close()


def test_the_timeline_leaves_out_the_weights_that_a_training_writes_in_every_round() -> None:
    events = [
        PlayerEvent(what, "main_0", round=k, frames=100 * k, parent="main_0") for k, what in enumerate(get_args(What))
    ]
    timeline = SnapshotTimeline()
    timeline.show(events, {"main_0": "retired"}, end=600)
    (line,) = timeline.content["lines"]
    assert [mark["kind"] for mark in line["marks"]] == ["snapshot", "reset", "frozen", "retired"]
    timeline.close()


def test_a_snapshot_opens_in_the_microscope(run: Run) -> None:
    panel = LeaguePanel(run)
    panel.catch_up()
    assert panel.open_button.disabled
    assert (panel._opponent.value, panel._player.value) == ("main_0", "main_0")
    panel.timeline.chosen = "main_0@0"
    panel._opponent.value = "main_0"
    panel.open_button.click()
    until(lambda: not panel.open_button.disabled, deadline_s=60)
    assert panel.microscope is not None and panel.result is not None, text_of(panel._about)
    assert panel.result.a == "main_0@0" and "main_0" in text_of(panel._about)
    assert list(panel.microscope.view.agents) == ["player_0", "player_1"]
    panel.close()


def test_freezing_is_a_request_that_the_training_carries_out(tmp_path: Path) -> None:
    experiment = Experiment.compose(*RPS)
    run = Run.create(tmp_path / "run", experiment)
    with Trainer(experiment, run) as trainer:
        for _ in range(4):
            next(trainer)
        tabs = attach(run)
        tabs.tabs.selected_index = list(tabs._pages).index("League")
        panel = tabs.opened["League"]
        assert isinstance(panel, LeaguePanel)
        panel.catch_up()
        assert not any(button.disabled for button in panel.buttons.values())
        panel._player.value = "league_exploiter_0"
        panel.buttons["freeze"].click()
        panel.catch_up()
        assert text_of(panel._requested) == "at the end of this round: freeze league_exploiter_0"
        for _ in range(4):
            next(trainer)
        panel.catch_up()
        assert "league_exploiter_0 is frozen" in text_of(panel._requested)
        assert "league_exploiter_0" not in panel._player.options
        assert "league_exploiter_0" in run.league.summary().win_rates.index  # its results stay
        tabs.close()


def test_no_player_can_be_frozen_before_there_is_one(tmp_path: Path) -> None:
    panel = LeaguePanel(Run.create(tmp_path / "run", Experiment.compose(*RPS)))
    panel.catch_up()
    assert panel._player.value is None and all(button.disabled for button in panel.buttons.values())
    panel.close()


def test_a_run_that_is_not_training_freezes_a_player_when_it_is_resumed(run: Run) -> None:
    panel = LeaguePanel(run)
    panel.catch_up()
    panel.buttons["freeze"].click()
    assert text_of(panel._requested) == "freeze main_0 when the run is resumed"
    panel.catch_up()
    assert text_of(panel._requested) == "when the run is resumed: freeze main_0"
    panel.close()
    shutil.rmtree(run.league.folder / "requests")


def test_runs_without_a_league_have_no_such_tab(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Experiment.compose("env=mpe/simple_spread", "algorithm=ippo"))
    panel = attach(run)
    assert "League" not in panel._pages
    panel.close()
