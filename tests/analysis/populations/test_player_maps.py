"""Results next to units: the disc game, whose hidden angle says what both maps must be."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import marlnb as mnb
from marlnb import plots
from marlnb.analysis.populations.player_maps import compare_maps
from marlnb.errors import AnalysisError, ConfigError
from marlnb.populations.ratings.elo import disc_component

N = 8
ANGLE = 2 * np.pi * np.arange(N) / N
DIFFERENCE = ANGLE[:, None] - ANGLE[None]
NAMES = [f"player_{k}" for k in range(N)]


def test_alike_results_are_the_cosine_of_the_hidden_angle() -> None:
    """Of the disc game, A_ij = sin(a_i - a_j)."""
    maps = compare_maps(NAMES, np.sin(DIFFERENCE), np.cos(DIFFERENCE), n_permutations=200)
    assert np.allclose(maps.results, np.cos(DIFFERENCE))
    x, y = disc_component(np.sin(DIFFERENCE)).coordinates.T
    angles = np.unwrap(np.arctan2(y, x))
    assert np.allclose(np.abs(np.diff(angles)), 2 * np.pi / N)
    assert maps.agreement == pytest.approx(1) and maps.p_value < 0.01
    assert np.allclose(maps.disagreement, 0) and "win against the same opponents (" in maps.verdict
    assert "a common history of training, as of one player's snapshots, gives both" in maps.verdict


def test_opposite_players_of_equal_units_disagree_most() -> None:
    """Units tuned to the angle, cos(s - a_i) at states s, have a CKA of cos(a_i - a_j)^2: 1 for opposite angles too."""
    states = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    units = np.cos(states[:, None] - ANGLE[None])
    cka = np.corrcoef(units.T) ** 2  # linear CKA of single units is the squared correlation
    assert np.allclose(cka, np.cos(DIFFERENCE) ** 2)
    maps = compare_maps(NAMES, np.sin(DIFFERENCE), cka, n_permutations=200)
    opposite = {frozenset((NAMES[k], NAMES[k + N // 2])) for k in range(N // 2)}
    first = maps.table().head(N // 2)
    assert {frozenset(pair) for pair in zip(first["a"], first["b"])} == opposite
    assert maps.agreement < 0 and "player_0 and player_4 have alike units, but other results" in maps.verdict
    axes = plots.player_maps_figure(maps)
    assert len(axes) == 3 and len(axes[2].collections[0].get_offsets()) == N * (N - 1) // 2


@pytest.mark.parametrize("n", [5, 8])
def test_names_of_eight_letters_do_not_touch(n: int) -> None:
    names = [f"main_0@{k}" for k in range(n)]
    results = np.sin(0.3 * np.subtract.outer(np.arange(n), np.arange(n)))
    ax = plots.player_maps_figure(compare_maps(names, results, np.eye(n), n_permutations=20))[0]
    ax.figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_players_are_compared_by_their_matches(tmp_path: Path) -> None:
    game = ("env=tests.populations.training.games:RockPaperScissors", "env.steps=3", "algorithm=ippo")
    small = ("n_envs=4", "rollout_steps=16", "frames=64", "algorithm.epochs=1", "model.hidden=[8]")
    experiments = [mnb.Experiment.compose(*game, *small, f"seed={seed}") for seed in range(4)]
    runs = [mnb.train(each, tmp_path / f"run_{each.seed}", progress=False) for each in experiments]
    recording = mnb.record(runs[0], episodes=8, explore=True, progress=False)
    units = {"site": "player/actor/hidden_1", "agent": "player_0"}
    mnb.match(runs[0], runs[1], episodes=6, progress=False)  # with other options, and the default name
    mnb.player_maps(runs, recording, **units, episodes=2, n_permutations=50)
    maps = mnb.player_maps(runs, recording, **units, episodes=4, n_permutations=50)
    assert maps.players == ("run_0", "run_1", "run_2", "run_3")
    assert np.allclose(np.diag(maps.features), 1) and np.allclose(maps.results, maps.results.T)
    with pytest.raises(AnalysisError, match="needs 4 players or more, each once; got run_0, run_0"):
        mnb.player_maps([runs[0]] * 2, recording, **units)
    with pytest.raises(ConfigError, match="n_permutations must be at least 20; got 0"):
        mnb.player_maps(runs, recording, **units, episodes=4, n_permutations=0)
