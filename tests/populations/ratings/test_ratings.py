"""Known answers of ratings: the disc game, alpha-rank's table, Nash averaging, planted strengths."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.errors import ConfigError
from marlnb.populations.ratings.alpha_rank import alpha_rank, alpha_rank_of_two
from marlnb.populations.ratings.elo import SCALE, cycles, disc_component, elo, transitive_part
from marlnb.populations.ratings.nash_averaging import (
    max_entropy_strategy,
    nash_averaging,
    relative_population_performance,
)
from marlnb.populations.ratings.player_ratings import rate

RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
R, T, P, S, DELTA, EPS = 1.0, 2.0, 0.0, -1.0, 4.0, 0.25
HAN = np.array(
    [
        [R - EPS / 2, R - EPS, 0, S + DELTA - EPS, R - EPS],
        [R, R, S, S, S],
        [0, T, P, P, P],
        [T - DELTA, T, P, P, P],
        [R, T, P, P, P],
    ]
)  # Han et al. 2013, as in OpenSpiel's test of alpha-rank


@pytest.mark.parametrize("n", [3, 7, 12])
def test_the_disc_game_is_all_cycle(n: int) -> None:
    angle = 2 * np.pi * np.arange(n) / n
    table = np.sin(angle[:, None] - angle[None])
    assert np.linalg.matrix_rank(table) == 2
    assert transitive_part(table) == pytest.approx(np.zeros(n))
    disc = disc_component(table)
    assert disc.share == pytest.approx(1)
    u, v = disc.coordinates.T
    assert np.outer(u, v) - np.outer(v, u) == pytest.approx(table)
    assert elo(1 / (1 + np.exp(-table)) * 100, np.full((n, n), 100.0)) == pytest.approx(np.zeros(n), abs=1e-6)


def test_elo_recovers_planted_strengths() -> None:
    strength = np.array([-300.0, -50.0, 0.0, 150.0, 200.0])
    rate = 1 / (1 + np.exp(-(strength[:, None] - strength[None]) / SCALE))
    ratings = elo(rate * 1e6, np.full((5, 5), 1e6))
    assert ratings == pytest.approx(strength - strength.mean(), abs=0.1)


def test_the_highest_rating_is_clear_or_not_separable_from_the_next() -> None:
    """Of two players the information is n p (1 - p) + 1/4 on the diagonal and -n p (1 - p) off it."""
    wins, games = np.array([[0.0, 6.0], [4.0, 0.0]]), np.array([[0, 10], [10, 0]])
    few, many = (rate(("a", "b"), n * wins, n * games, n * games) for n in (1, 100))
    difference, low, high = few.lead("a", "b")
    p = 1 / (1 + np.exp(-difference / SCALE))
    assert high - low == pytest.approx(2 * 1.96 * SCALE / np.sqrt(10 * p * (1 - p) + 0.125), rel=0.01)
    assert low < 0 and "not separable from the next, b" in few.verdict
    assert many.lead("a", "b")[1] > 0 and "above the next, b (difference +16" in many.verdict
    with pytest.raises(ConfigError, match="Valid: a, b"):
        many.lead("a", "c")


def test_elo_is_finite_without_games_and_without_losses() -> None:
    games = np.array([[0, 50, 0], [50, 0, 0], [0, 0, 0]])
    ratings = elo(np.array([[0, 50, 0], [0, 0, 0], [0, 0, 0]]), games)
    assert np.isfinite(ratings).all() and ratings[0] > ratings[2] > ratings[1]


def test_the_cyclic_share_of_cycles_of_planted_strengths_and_of_chance() -> None:
    rps = cycles(np.array([[0, 10, 90], [90, 0, 10], [10, 90, 0]]), 100 * (1 - np.eye(3)))
    assert rps.share == pytest.approx(1) and rps.p_value < 1e-9
    chain = cycles(np.array([[0, 90, 0], [10, 0, 90], [0, 10, 0]]), [[0, 100, 0], [100, 0, 100], [0, 100, 0]])
    assert chain.share == pytest.approx(0, abs=1e-9) and chain.p_value == 1  # no pair closes a cycle
    rng, n = np.random.default_rng(0), 12
    strength = rng.normal(size=n)
    rate = 1 / (1 + np.exp(strength[None] - strength[:, None]))
    met = np.triu(rng.random((n, n)) < 0.6, 1)
    p_values = []
    for _ in range(200):
        won = rng.binomial(200, rate) * met
        planted = cycles(won + (200 * met - won).T, 200 * (met + met.T))
        assert planted.share < 0.1
        p_values.append(planted.p_value)
    assert 0.02 < np.mean(np.array(p_values) < 0.1) < 0.2


def test_the_p_value_of_a_cycle_next_to_players_who_met_no_one_of_it() -> None:
    """A beats B, B beats C and C beats A, 9 games of 10 each; D beats E in 7 of 10.

    With a draw more, each pair of the cycle has the log-odds ln(9.5 / 1.5) = 1.846 and the weight 9.5 1.5 / 11 = 1.295,
    so Q = 3 1.295 1.846^2 = 13.24. Four pairs, five players and two parts leave one degree of freedom.
    """
    wins = np.zeros((5, 5))
    for winner, loser, won in ((0, 1, 9), (1, 2, 9), (2, 0, 9), (3, 4, 7)):
        wins[winner, loser], wins[loser, winner] = won, 10 - won
    assert cycles(wins, wins + wins.T).p_value == pytest.approx(2.74e-4, rel=0.01)


def test_alpha_rank_of_the_published_table() -> None:
    expected = [0.40966787, 0.07959841, 0.20506998, 0.08505983, 0.2206039]
    assert alpha_rank(HAN, m=20, alpha=0.1) == pytest.approx(expected, abs=1e-7)


def test_alpha_rank_of_two_populations_equals_openspiels() -> None:
    module = pytest.importorskip("open_spiel.python.egt.alpharank")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4))
    pi = module.compute([a, b], m=20, alpha=0.5)[2].reshape(3, 4)
    rows, columns = alpha_rank_of_two(a, b, m=20, alpha=0.5)
    assert rows == pytest.approx(pi.sum(1), abs=1e-6) and columns == pytest.approx(pi.sum(0), abs=1e-6)


def test_alpha_rank_bears_strong_selection() -> None:
    shares = alpha_rank(np.array([[0.5, 0.0, 1.0], [1.0, 0.5, 0.0], [0.0, 1.0, 0.5]]), m=50, alpha=1000.0)
    assert shares == pytest.approx([1 / 3] * 3)


def test_nash_averaging_of_a_transitive_game_and_of_a_cycle() -> None:
    transitive = np.array([[0, 0, -1], [0, 0, -1], [1, 1, 0]])
    result = nash_averaging(transitive)
    assert result.shares == pytest.approx([0, 0, 1]) and result.ratings == pytest.approx([-1, -1, 0])
    cycle = nash_averaging(RPS)
    assert cycle.shares == pytest.approx([1 / 3] * 3, abs=1e-6) and cycle.ratings == pytest.approx([0] * 3, abs=1e-6)


def test_copies_of_a_player_change_no_rating() -> None:
    index = [0, 1, 2, 2, 2]
    result = nash_averaging(RPS[np.ix_(index, index)])
    assert result.shares == pytest.approx([1 / 3, 1 / 3, 1 / 9, 1 / 9, 1 / 9], abs=1e-5)
    assert result.ratings == pytest.approx([0] * 5, abs=1e-5)


def test_the_largest_entropy_in_games_with_a_value() -> None:
    assert max_entropy_strategy(np.ones((3, 2))) == pytest.approx([1 / 3] * 3)
    assert max_entropy_strategy(np.array([[2.0, 2.0], [1.0, 3.0], [3.0, 1.0]])) == pytest.approx([1 / 3] * 3, abs=1e-5)


def test_relative_population_performance() -> None:
    assert relative_population_performance((RPS + 1) / 2) == pytest.approx(0.5)
    assert relative_population_performance(np.array([[0.9, 0.8], [0.2, 0.3]])) == pytest.approx(0.8)
