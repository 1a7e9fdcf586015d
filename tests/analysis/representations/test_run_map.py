"""The map of runs by representation: distances, positions, and where two runs differ most."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

import marlnb as mnb
from marlnb import plots
from marlnb.analysis.representations.run_map import _comparable_returns, _differences, _positions
from marlnb.analysis.representations.run_map_result import RunMap
from marlnb.errors import AnalysisError, RunError
from marlnb.training.runs.status import scores_of_group

SMALL = ("env=mpe/simple_spread", "algorithm=ippo", "n_envs=4", "rollout_steps=25", "model.hidden=[8]", "threads=1")


class Rows:
    """Units as an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def all(self) -> np.ndarray:
        return self.values


def test_runs_with_the_same_weights_are_one_point(tmp_path: Path) -> None:
    runs = [
        mnb.train(
            mnb.Experiment.compose(*SMALL, "frames=200", "evaluate_every=0", f"seed={seed}"),
            tmp_path / f"seed={seed}",
            progress=False,
        )
        for seed in range(2)
    ]
    runs.append(mnb.Run.open(shutil.copytree(runs[0].path, tmp_path / "copy")))
    recording = mnb.record(runs[0], episodes=6, progress=False)
    units = {"site": "agent/actor/hidden_1", "agent": "agent_1"}
    result = mnb.run_map([runs[0], runs[1].path, str(runs[2].path)], recording, **units)
    assert result.runs == ("seed=0", "seed=1", "copy")
    views = [mnb.View(recording, *units.values(), policy_source=run) for run in runs[:2]]
    cka = mnb.similarity(*views).score
    assert result.similarity[0, 1] == pytest.approx(cka) and result.similarity[0, 2] == pytest.approx(1)
    for i, j in combinations(range(3), 2):  # three points lie in a plane
        distance = np.linalg.norm(result.positions[i] - result.positions[j])
        assert distance == pytest.approx(np.sqrt(max(0, 2 - 2 * result.similarity[i, j])), abs=1e-6)
    assert result.explained == pytest.approx(1) and result.table().iloc[0]["similarity"] == pytest.approx(cka)
    assert np.isfinite(result.returns).all() and result.returns[0] == result.returns[2]
    assert result.most_different == ("seed=0", "copy") and "have equal returns" in result.verdict
    assert len(plots.run_map_figure(result).collections[0].get_offsets()) == 3
    with pytest.raises(AnalysisError, match="at least 2 different runs"):
        mnb.run_map(runs[:1], recording, **units)
    with pytest.raises(RunError, match="nowhere"):
        mnb.run_map([runs[0], tmp_path / "nowhere"], recording, **units)


def test_a_populations_return_is_that_of_its_fittest_member(tmp_path: Path) -> None:
    evolution = ("evolution=tournament", "evolution.population=2", "evolution.generation_frames=100", "seed=1")
    run = mnb.train(
        mnb.Experiment.compose(*SMALL, *evolution, "evaluation_episodes=2", "frames=200"),
        tmp_path / "population",
        progress=False,
    )
    first, last = run.metrics()["returns/agent"]  # of members 0 and 1
    assert run.population.best.id == "0-0" and first != pytest.approx(last)
    recording = mnb.record(run, episodes=4, progress=False)
    units = {"site": "agent/actor/hidden_1", "agent": "agent_1"}
    duplicate = mnb.Run.open(shutil.copytree(run.path, tmp_path / "duplicate"))
    result = mnb.run_map([run, duplicate], recording, **units)
    assert result.mode == "exploring" and result.returns == pytest.approx(first)
    winner = run.population.winner(tmp_path / "winner")  # it has no training episodes of its own
    result = mnb.run_map([run, winner], recording, **units)
    assert result.mode == "greedy" and result.returns == pytest.approx(run.population.best.row.score)


def test_runs_without_comparable_returns() -> None:
    team, evaluated = {"exploring": {"a": -3.0}, "greedy": {"a": -2.0}}, {"greedy": {"a": -2.5}}
    game = {"exploring": {"a_0": 0.3, "a_1": -0.3}, "greedy": {"a": 0.0}}  # one group against itself
    scores = [scores_of_group({"scores": each}, "a") for each in (team, {"exploring": {}, **evaluated}, game, {})]
    assert scores == [{"exploring": -3.0, "greedy": -2.0}, {"greedy": -2.5}, {}, {}]
    returns, mode = _comparable_returns(scores)
    assert mode == "greedy" and np.array_equal(returns, [-2.0, -2.5, np.nan, np.nan], equal_nan=True)


def test_equal_returns_and_other_units() -> None:
    similarity = np.array([[1.0, 0.9, 0.2], [0.9, 1.0, 0.1], [0.2, 0.1, 1.0]])
    positions, explained = _positions(2 - 2 * similarity)
    zeros = np.zeros((3, 3), dtype=int)
    result = RunMap(
        *(("a", "b", "c"), "s", "agent", np.array([-10.0, -30.0, -10.5]), "greedy"),
        *(similarity, similarity, similarity, np.zeros((3, 3)), positions, explained, zeros + 4, zeros + 7),
    )
    assert result.most_different == ("a", "c")  # b and c are less similar, but their returns differ
    assert "episode 4, step 7" in result.verdict and "CKA 0.20" in result.verdict
    ax = plots.run_map_figure(replace(result, returns=np.array([-10.0, np.nan, -10.5])))
    assert [len(points.get_offsets()) for points in ax.collections] == [2, 1]  # the run without a return is hollow
    assert names_of(ax) == ["1: a", "2: b (no return)", "3: c"] and [text.get_text() for text in ax.texts] == [
        "1",
        "2",
        "3",
    ]
    ax = plots.run_map_figure(replace(result, returns=np.full(3, -3.0)))
    ax.figure.draw_without_rendering()
    assert {to_hex(mark.get_color()) for mark in ax.get_legend().legend_handles} == {
        to_hex(colour) for colour in ax.collections[0].get_facecolor()
    }
    long = tuple(f"algorithm=mappo,model=gru,n_envs=32,seed={k}" for k in range(3))
    ax = plots.run_map_figure(replace(result, runs=long, positions=positions * [[1], [0], [1]] * [[1], [1], [0]]))
    assert names_of(ax) == [f"{k}: {name}" for k, name in enumerate(long, start=1)]
    assert [text.get_text() for text in ax.texts] == ["1", "2, 3"]  # at the same position
    ax.figure.draw_without_rendering()
    (box, bar) = (each.get_window_extent() for each in (ax.get_legend(), ax.figure.axes[1]))
    assert box.x0 > ax.get_window_extent().x1 and not box.overlaps(bar) and box.x1 <= ax.figure.bbox.x1


def names_of(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]  # type: ignore[union-attr]


def test_the_step_at_which_two_networks_differ_most() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    y = 3 * np.pad(x, ((0, 0), (0, 2))) @ rotation  # the same up to scale, rotation and silent units
    assert _differences(Rows(x), Rows(y)).max() < 1e-9  # type: ignore[arg-type]
    y[17] = -y[17]
    assert np.argmax(_differences(Rows(x), Rows(y))) == 17  # type: ignore[arg-type]
