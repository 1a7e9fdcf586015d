"""A league's report: measures by hand, and a league with its control."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import marlnb as mnb
from marlnb import plots
from marlnb.analysis.populations.league_report import _measure, population_shares, relative_performance
from marlnb.analysis.populations.league_report_result import LeagueReport
from marlnb.analysis.populations.round_robin import Results
from marlnb.cli import main
from marlnb.errors import AnalysisError, ConfigError
from marlnb.populations.ratings.alpha_rank import alpha_rank, alpha_rank_of_two

ROCK_PAPER_SCISSORS = np.array([[0.5, 0, 1], [1, 0.5, 0], [0, 1, 0.5]])
WORDS = (
    *("env=tree/biased_rps", "algorithm=ippo", "model.hidden=[8]", "n_envs=8", "rollout_steps=16"),
    *("algorithm.epochs=1", "frames=512", "league.win_margin=100"),
)


def _results(win_rates: np.ndarray, episodes: int = 100) -> Results:
    games = episodes * (1 - np.eye(len(win_rates)))
    return Results(win_rates * games, games)


def test_relative_performance_by_hand() -> None:
    """Rock and paper against scissors alone; rock wins. The same with sides of their own."""
    assert relative_performance(_results(ROCK_PAPER_SCISSORS), ["", "", ""], 2) == pytest.approx(1.0)
    assert relative_performance(_results(ROCK_PAPER_SCISSORS), ["", "", ""], 1) == pytest.approx(0.0)
    rates = np.full((4, 4), 0.5)  # a, b of ours on sides x, y; c, d of theirs: a beats d always, b beats c in 0.6
    rates[0, 3], rates[3, 0], rates[1, 2], rates[2, 1] = 1.0, 0.0, 0.6, 0.4
    assert relative_performance(_results(rates), ["x", "y", "x", "y"], 2) == pytest.approx(0.8)


def test_shares_of_one_population_and_of_two() -> None:
    one = population_shares(_results(ROCK_PAPER_SCISSORS), ["", "", ""], alpha_rank, alpha_rank_of_two)
    assert one == pytest.approx([1 / 3] * 3)
    rates = np.full((3, 3), 0.5)
    rates[0, 2], rates[2, 0], rates[1, 2], rates[2, 1] = 0.9, 0.1, 0.2, 0.8
    two = population_shares(_results(rates), ["x", "x", "y"], alpha_rank, alpha_rank_of_two)
    assert two[0] > 0.9 and two[0] + two[1] == pytest.approx(1) and two[2] == pytest.approx(1)
    assert np.isnan(population_shares(_results(rates), ["x", "y", "z"], alpha_rank, alpha_rank_of_two)).all()


def test_null_results_are_named() -> None:
    higher = _measure("win rate", 0.5, "higher", [0.6, 0.62, 0.61, 0.6, 0.63])
    assert higher.verdict == "better" and higher.low is not None and 0.59 < higher.low < 0.61
    assert _measure("exploitability", 0.0, "lower", [0.6, 0.62, 0.61, 0.6, 0.63]).verdict == "worse"
    assert _measure("win rate", 0.5, "higher", [0.4, 0.6, 0.5, 0.45, 0.56]).verdict == "no difference shown"


@pytest.mark.parametrize("values", [[0.9], [0.9, 0.9], [0.9, 0.91, 0.9, 0.91], [0.9] * 5])
def test_few_or_equal_seeds_show_nothing(values: list[float]) -> None:
    """The t interval of equal values has no width, and would call any difference certain."""
    measure = _measure("win rate", 0.5, "higher", values)
    assert (measure.low is None) == (measure.high is None) == (len(set(values)) == 1)
    few = len(values) < 5
    assert measure.verdict == ("too few seeds" if few else "equal in all seeds, so without an interval")
    assert ("[" in measure.text) == (len(set(values)) > 1)


def test_a_report_without_a_control_says_so() -> None:
    players = pd.DataFrame({"seed": [0], "player": ["a"], "side": ["any"], "elo": [0.0], "alpha_rank": [1.0]})
    players = players.assign(nash=1.0, cyclic_share=0.25, cyclic_p=0.5)
    report = LeagueReport("toy", "pfsp", "", 100, None, (), players, 1)
    assert "next to no control: nothing was compared. Cycles, which Elo cannot show, make up 25%" in report.verdict
    assert [text[:19] for text in report.warnings] == ["there is no control", "1 seed: a conclusio"]


def test_a_league_and_its_control(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, controls = [], []
    for seed in range(2):
        words = ("league=fictitious", "league.snapshot_frames=128", f"seed={seed}")
        experiment = mnb.Experiment.compose(*WORDS, *words)
        runs.append(mnb.train(experiment, tmp_path / f"league_{seed}", progress=False))
        control = mnb.league_control(experiment)
        assert (control.league.name, control.algorithm.entropy_coef) == ("self_play", 0.05)  # type: ignore[attr-defined, union-attr]
        controls.append(mnb.train(control, tmp_path / f"control_{seed}", progress=False))
    report = mnb.league_report(runs, controls, players=2, episodes=4, progress=False)
    names = [measure.name for measure in report.measures]
    assert names[:2] == ["relative population performance", "win rate of the main against the control's"]
    assert names[2:] == [
        "exploitability of the main minus the control's",
        "exploitability of the league's Nash mixture minus the control's",
    ]
    exact = mnb.exploitability(runs[1].league["main_0"]) - mnb.exploitability(controls[1].league["main_0"])
    assert report.measures[2].values[1] == pytest.approx(exact)
    assert len(report.players) == 2 * 4 and report.ratings()["nash"].sum() == pytest.approx(1)
    assert len(plots.league_report_figure(report)) == 3 and "control/main_0" in report._repr_html_()
    assert json.loads(json.dumps(report.to_json()))["control"] == "self_play by ippo, entropy bonus 0.05"
    assert main(["info", str(runs[0].path)]) == 0
    assert report.verdict in capsys.readouterr().out
    more = mnb.league_report(runs[0], controls[0], players=3, episodes=6, progress=False)
    ids = set(more.players["player"])
    assert {name for name in ids if f"control/{name}" in ids} > {"main_0"}  # snapshots of the same name
    with pytest.raises(AnalysisError, match=r"a seed of its own; got .*league_0 with 0, .*league_0 with 0$"):
        mnb.league_report([runs[0]] * 2, controls)
    with pytest.raises(AnalysisError, match=r"a seed of its own; got .*control_1 with 1, .*control_1 with 1$"):
        mnb.league_report(runs, controls[1:] * 2)
    for wrong, message in ((0, "at least 1; got 0"), (1.5, "a whole number; got 1.5")):
        with pytest.raises(ConfigError, match=f"players must be {message}"):
            mnb.league_report(runs, controls, players=wrong)  # type: ignore[arg-type]
    longer = mnb.resume(controls[0], frames=1024, progress=False)
    with pytest.raises(AnalysisError, match=r"equally many.*league_0: 512, .*control_0: 1,024"):
        mnb.league_report(runs[0], longer)


@pytest.mark.parametrize(
    ("words", "n_exact"), [(("model=gru",), 0), (("groups.first=[player_0]", "groups.second=[player_1]"), 2)]
)
def test_a_report_has_the_exact_measures_that_there_are(words: tuple[str, ...], n_exact: int, tmp_path: Path) -> None:
    small = [word for word in (*WORDS, *words) if not word.startswith("model.")]
    experiment = mnb.Experiment.compose(*small, "league=self_play", "league.snapshot_frames=128")
    league = mnb.train(experiment, tmp_path / "league", progress=False)
    control = mnb.train(mnb.league_control(experiment), tmp_path / "control", progress=False)
    measures = mnb.league_report(league, control, players=2, episodes=4, progress=False).measures
    exact = [measure for measure in measures if measure.name.startswith("exploitability")]
    assert len(exact) == n_exact and len(measures) == 2 + n_exact
    if exact:
        assert exact[0].values[0] == pytest.approx(mnb.exploitability(league) - mnb.exploitability(control))


def test_a_control_in_an_environment_with_other_options_is_an_error(tmp_path: Path) -> None:
    words = ("env=game/disc", "league=fictitious", "frames=128", *WORDS[1:6])
    runs = [
        mnb.train(
            mnb.Experiment.compose(*words, f"env.strength={strength}"), tmp_path / f"of_{strength}", progress=False
        )
        for strength in (1, 5)
    ]
    with pytest.raises(AnalysisError, match=r"environments: .*of_1 with strength=1.0, .*of_5 with strength=5.0$"):
        mnb.league_report(runs[0], runs[1])
