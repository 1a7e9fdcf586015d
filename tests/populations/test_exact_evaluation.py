"""Exact exploitability of trained players, compared with that of their probabilities in the matrix game."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.envs.games.tree import BiasedRPSConfig
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import ActContext
from marlnb.populations.exact_evaluation import mixture_weights
from marlnb.populations.ratings.exploitability import uniform
from marlnb.populations.ratings.matrix_games import nash_conv

PAYOFFS = np.array([[0, -25, 50], [25, 0, -5], [-50, 5, 0]], float)
SMALL = ("algorithm=ippo", "algorithm.epochs=1", "n_envs=8", "rollout_steps=16", "tuned=false")


def train(path: Path, *overrides: str) -> mnb.Run:
    return mnb.train(mnb.Experiment.compose(*SMALL, *overrides), path, progress=False)


def sampled_strategy(player: object, n: int = 20_000) -> np.ndarray:
    """`[player, action]`, how often each action is drawn."""
    policy = player.policies()["player"]  # type: ignore[attr-defined]
    observation = torch.eye(2).expand(n, 2, 2)
    mask = torch.ones(n, 2, 3, dtype=torch.bool)
    action = policy.choose(observation, ActContext(action_mask=mask, generator=torch.Generator().manual_seed(0))).action
    return np.stack([np.bincount(action[:, k], minlength=3) / n for k in range(2)])


def test_players_and_mixtures_of_a_league(tmp_path: Path) -> None:
    options = ("env=tree/biased_rps", "league=fictitious", "league.snapshot_frames=128", "league.win_margin=100")
    run = train(tmp_path / "run", *options, "frames=1024", "algorithm.lr=0.01")
    snapshots = run.league["main_0"].snapshots
    assert len(snapshots) > 3
    strategies = [sampled_strategy(snapshot) for snapshot in snapshots]
    for snapshot, (x, y) in zip(snapshots, strategies):
        assert mnb.exploitability(snapshot) == pytest.approx(nash_conv(PAYOFFS, x, y) / 2, abs=0.6)
    x, y = np.mean(strategies, axis=0)
    assert mnb.league_exploitability(run.league, "uniform") == pytest.approx(nash_conv(PAYOFFS, x, y) / 2, abs=0.4)
    ids = [snapshot.id for snapshot in snapshots]
    assert not run.league.payoff().counts(ids, ids).any()  # they never met, and yet the game between them is solved
    assert mnb.league_exploitability(run.league, "nash") != mnb.league_exploitability(run.league, "uniform")
    payoff = run.league.payoff()
    assert not set(np.unique(payoff.win_rates)) <= {0.0, 0.5, 1.0}  # leads count in proportion


def test_errors(tmp_path: Path) -> None:
    other = train(tmp_path / "other", "env=matrix/climbing", "frames=128")
    with pytest.raises(AnalysisError, match=r"states are listed, such as tree/biased_rps.*got matrix/climbing"):
        mnb.exploitability(other)
    recurrent = train(tmp_path / "gru", "env=tree/biased_rps", "model=gru", "frames=128")
    with pytest.raises(AnalysisError, match="recurrent"):
        mnb.exploitability(recurrent)
    tree = BiasedRPSConfig().tree
    with pytest.raises(AnalysisError, match="no snapshots yet"):
        mixture_weights(tree, (), "nash")
    with pytest.raises(AnalysisError, match="'mean'"):
        mixture_weights(tree, (uniform(tree),), "mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("game", ["kuhn_poker", "kuhn_poker(players=3)"])
def test_exploitability_is_the_mean_over_all_players_as_openspiel_computes_it(game: str, tmp_path: Path) -> None:
    pyspiel = pytest.importorskip("pyspiel")
    words = ("env=tree/openspiel", f"env.game='{game}'", "league=self_play", "frames=128")
    league = train(tmp_path / "run", *words).league
    loaded = pyspiel.load_game(game)
    uniform_play = pyspiel.exploitability(loaded, pyspiel.UniformRandomPolicy(loaded))
    assert mnb.exploitability(league.run) == pytest.approx(uniform_play, rel=0.1)
    assert mnb.league_exploitability(league, "uniform") == pytest.approx(uniform_play, rel=0.1)
