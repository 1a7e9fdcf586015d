"""Exact exploitability of trained players, compared with that of their probabilities in the matrix game."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.envs.games.tree import BiasedRPSConfig
from marlnb.errors import AnalysisError, NoExactValueError
from marlnb.models.policies.policy import ActContext, Policy
from marlnb.populations.exact_evaluation import behaviour, mixture_weights, perfect_response, tree_of
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


def strategy(policy: Policy, row: int = 0) -> np.ndarray:
    """`[action]`, what an agent of a group plays in this game, whose players observe their number only."""
    seats = [int(agent[-1]) for agent in policy.group.agents]
    mask = torch.ones(1, len(seats), 3, dtype=torch.bool)
    logits = policy.act(torch.eye(2)[seats][None], action_mask=mask).logits[0, row]
    return np.asarray(logits.detach().double().softmax(-1))


def test_policies_of_q_values_take_the_largest_one(tmp_path: Path) -> None:
    learning = ("algorithm=iql", "algorithm.learning_starts=64", "n_envs=8", "rollout_steps=16", "tuned=false")
    words = ("env=tree/biased_rps", *learning, "league=self_play", "frames=512")
    run = mnb.train(mnb.Experiment.compose(*words), tmp_path / "run", progress=False)
    for player in (run, run.league["main_0"], *run.league["main_0"].snapshots):
        action = player.policies()["player"].act(torch.eye(2)[None], explore=False).action[0]
        x, y = np.eye(3)[action]
        assert mnb.exploitability(player) == pytest.approx(nash_conv(PAYOFFS, x, y) / 2)


def test_players_in_groups_of_their_own(tmp_path: Path) -> None:
    words = ("env=tree/biased_rps", "algorithm.lr=0.01", "frames=256")
    groups = (
        "groups.second=[player_1]",
        "groups.first=[player_0]",
        "algorithms.first=ippo",
        "+algorithms.first.lr=0.1",
    )
    run = train(tmp_path / "run", *words, *groups)
    x, y = (strategy(run.policies()[group]) for group in ("first", "second"))
    assert abs(x - y).max() > 0.02
    assert mnb.exploitability(run) == pytest.approx(nash_conv(PAYOFFS, x, y) / 2, abs=1e-4)
    assert perfect_response(run, "first") == pytest.approx((-x @ PAYOFFS).max(), abs=1e-4)
    assert perfect_response(run, "second") == pytest.approx((PAYOFFS @ y).max(), abs=1e-4)
    turned = train(tmp_path / "turned", *words, "groups.all=[player_1,player_0]")
    y, x = (strategy(turned.policies()["all"], row) for row in range(2))
    assert abs(x - y).max() > 1e-4
    assert behaviour(turned.policies(), tree_of(turned)) == pytest.approx(np.stack((x, y)), abs=1e-6)


def test_a_group_without_a_network_plays_its_random_or_its_only_choice(tmp_path: Path) -> None:
    words = ("env=tree/biased_rps", "groups.first=[player_0]", "groups.second=[player_1]", "frames=128")
    for algorithm, y in (("random", np.full(3, 1 / 3)), ("no_op", np.eye(3)[0])):
        run = train(tmp_path / algorithm, *words, f"algorithms.second={algorithm}")
        x = strategy(run.policies()["first"])
        assert mnb.exploitability(run) == pytest.approx(nash_conv(PAYOFFS, x, y) / 2, abs=1e-4)


def test_a_league_whose_sides_have_players_of_their_own(tmp_path: Path) -> None:
    words = ("env=tree/biased_rps", "groups.second=[player_1]", "groups.first=[player_0]", "algorithm.lr=0.01")
    options = ("league=fictitious", "league.snapshot_frames=128", "frames=1024")
    league = train(tmp_path / "run", *words, *options).league
    strategies: dict[str, list[np.ndarray]] = {"first": [], "second": []}
    for name, player in league.history.playing.items():
        if player.is_snapshot:
            strategies[player.side].append(strategy(league[name].policies()[player.side]))
    name = next(name for name, player in league.history.playing.items() if player.side == "first")
    x, y = (np.mean(each, axis=0) for each in strategies.values())
    played = strategy(league[name].policies()["first"])
    assert mnb.exploitability(league[name]) == pytest.approx((-played @ PAYOFFS).max(), abs=1e-4)
    assert mnb.league_exploitability(league, "uniform") == pytest.approx(nash_conv(PAYOFFS, x, y) / 2, abs=1e-4)
    assert 0 < mnb.league_exploitability(league, "nash") != mnb.league_exploitability(league, "uniform")


def test_the_equilibrium_between_two_sides() -> None:
    tree = BiasedRPSConfig().tree
    rock, paper, scissors = (np.tile(row, (2, 1)) for row in np.eye(3))
    first, second = mixture_weights(tree, ((rock, paper, scissors), (scissors, rock, paper)), "nash")
    assert first == pytest.approx(np.array([1, 10, 5]) / 16) and second == pytest.approx(np.array([5, 1, 10]) / 16)
    first, second = mixture_weights(tree, ((rock, paper, scissors), (paper,)), "nash")
    assert first == pytest.approx([0, 0, 1]) and second == pytest.approx([1])


def test_errors(tmp_path: Path) -> None:
    other = train(tmp_path / "other", "env=matrix/climbing", "frames=128")
    with pytest.raises(AnalysisError, match=r"states are listed, such as tree/biased_rps.*got matrix/climbing"):
        mnb.exploitability(other)
    recurrent = train(tmp_path / "gru", "env=tree/biased_rps", "model=gru", "frames=128")
    with pytest.raises(NoExactValueError, match=r"recurrent network.*mnb.best_response"):
        mnb.exploitability(recurrent)
    tree = BiasedRPSConfig().tree
    with pytest.raises(NoExactValueError, match="no snapshots yet"):
        mixture_weights(tree, ((),), "nash")
    with pytest.raises(AnalysisError, match="'mean'"):
        mixture_weights(tree, ((uniform(tree),),), "mean")  # type: ignore[arg-type]


def test_a_network_that_reads_what_other_players_observe(tmp_path: Path) -> None:
    """In poker it knows the opponent's card; where everything is visible it knows nothing more."""
    pytest.importorskip("pyspiel")
    poker = train(tmp_path / "poker", "env=tree/kuhn_poker", "model=gnn", "frames=128")
    with pytest.raises(NoExactValueError, match="'player' reads what other players observe"):
        mnb.exploitability(poker)
    visible = train(tmp_path / "visible", "env=tree/openspiel", "env.game=tic_tac_toe", "model=gnn", "frames=128")
    assert mnb.exploitability(visible) > 0


@pytest.mark.parametrize("game", ["kuhn_poker", "kuhn_poker(players=3)"])
def test_exploitability_is_the_mean_over_all_players_as_openspiel_computes_it(game: str, tmp_path: Path) -> None:
    pyspiel = pytest.importorskip("pyspiel")
    words = ("env=tree/openspiel", f"env.game='{game}'", "league=self_play", "frames=128")
    league = train(tmp_path / "run", *words).league
    loaded = pyspiel.load_game(game)
    uniform_play = pyspiel.exploitability(loaded, pyspiel.UniformRandomPolicy(loaded))
    assert mnb.exploitability(league.run) == pytest.approx(uniform_play, rel=0.1)
    assert mnb.league_exploitability(league, "uniform") == pytest.approx(uniform_play, rel=0.1)
