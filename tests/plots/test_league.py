"""Figures of a league show the numbers of its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb import plots
from marlnb.errors import AnalysisError
from marlnb.experiment import Experiment
from marlnb.populations.league.rating_history import ratings_over_rounds
from marlnb.training.runs.run import Run
from marlnb.training.train import train

RPS = (
    *("env=tests.populations.training.games:RockPaperScissors", "league=alphastar", "algorithm=ippo"),
    *("algorithm.epochs=1", "n_envs=4", "rollout_steps=16", "frames=768"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(Experiment.compose(*RPS), tmp_path_factory.mktemp("league") / "rps", progress=False)


def test_bars_have_the_length_of_the_matches(run: Run) -> None:
    ax = plots.match_counts(run.league)
    counts = run.league.counts()
    widths = sum(patch.get_width() for patch in ax.patches)
    assert widths == sum(sum(kinds.values()) for kinds in counts.values()) == len(run.league.matches())


def test_cells_are_win_rates_and_grey_where_players_have_not_met(run: Run) -> None:
    payoff = run.league.payoff()
    rows, columns = ["main_0"], ["main_0@0", "main_0@1", "main_0"]
    ax = plots.payoff_map(run.league, rows, columns)
    cells = ax.collections[0].get_array().reshape(1, 3)
    met = payoff.counts(rows, columns)[0] > 0
    assert np.array_equal(~np.ma.getmaskarray(cells)[0] & ~np.isnan(cells.filled(np.nan)[0]), [*met[:2], False])
    assert cells[0, 0] == pytest.approx(payoff.win_rate("main_0", "main_0@0"))
    one = plots.payoff_map(run.league, "main_0", "main_0@0").collections[0].get_array()
    assert np.array_equal(one.reshape(1), cells[0, :1])


def test_snapshots_that_are_left_out_are_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    league = run.league
    playing = [name for name in league.players if name in league.history.playing]
    n_snapshots = sum(len(league[name].snapshots) for name in playing)
    assert plots.payoff_map(league).get_xlabel() == ""
    monkeypatch.setattr("marlnb.plots.populations.league.MAX_PLAYERS", len(playing) + 1)
    ax = plots.payoff_map(league)
    shown = [label.get_text() for label in ax.get_xticklabels() if "@" in label.get_text()]
    assert ax.get_xlabel() == f"{len(shown)} of {n_snapshots} snapshots; columns= chooses others"
    assert 0 < len(shown) < n_snapshots
    # room for every snapshot but one: players with few snapshots leave theirs to those with more
    monkeypatch.setattr("marlnb.plots.populations.league.MAX_PLAYERS", len(playing) + n_snapshots - 1)
    shown = [label.get_text() for label in plots.payoff_map(league).get_xticklabels() if "@" in label.get_text()]
    largest = max(len(league[name].snapshots) for name in playing)
    assert len(shown) == sum(min(largest - 1, len(league[name].snapshots)) for name in playing)
    monkeypatch.setattr("marlnb.plots.populations.league.MAX_PLAYERS", len(playing) + n_snapshots)
    assert plots.payoff_map(league).get_xlabel() == ""


def test_the_last_point_is_the_rating_of_today(run: Run) -> None:
    """No player was reset at the end of the last round but one, or its results of today are those of the last round."""
    league = run.league
    history = list(ratings_over_rounds(league.matches(), league.events(), league.config.decay))
    today = league.ratings()
    last_resets = {event.player for event in league.events() if event.event == "reset"}
    if not any(event.round == history[-1].round for event in league.events() if event.player in last_resets):
        assert history[-1].elo["main_0"] == pytest.approx(dict(zip(today.players, today.elo))["main_0"], abs=60)
    left, right = plots.ratings_over_time(league)
    assert [line.get_label() for line in left.lines] == list(league.players)
    assert list(right.lines[0].get_ydata()) == [point.cyclic_share for point in history]
    left.figure.draw_without_rendering()
    assert left.get_legend().get_window_extent().x0 >= left.get_window_extent().x1  # type: ignore[union-attr]
    assert history[-1].matches == len(league.matches())


def test_each_snapshot_is_a_dot_on_its_players_line(run: Run) -> None:
    ax = plots.snapshot_timeline(run.league)
    dots = next(each for each in ax.collections if each.get_label() == "snapshot").get_offsets()
    snapshots = [each for player in run.league.players.values() for each in player.snapshots]
    assert sorted(map(float, dots[:, 0])) == sorted(float(each.player.born_at_frames) for each in snapshots)


def test_an_empty_league_says_so(tmp_path: Path) -> None:
    league = Run.create(tmp_path / "run", Experiment.compose(*RPS)).league
    with pytest.raises(AnalysisError, match="no match has ended"):
        plots.match_counts(league)
