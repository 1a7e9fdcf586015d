"""Elo ratings, and next to them what they cannot show: the cyclic part of who beats whom.

An antisymmetric table A `[player, opponent]`, as the log-odds of win rates, is a sum of a transitive and a cyclic part:

    A[i, j] = r_i - r_j + C[i, j],    r_i = mean_j A[i, j],    sum_j C[i, j] = 0

In rock-paper-scissors r is 0 for all: all Elos are equal although each player beats another one. Where not all pairs
have met, r is the weighted least-squares solution over those that have (`cycles`).

Source: Balduzzi et al. 2018, "Re-evaluating evaluation", sections 3 and 4 (arXiv:1806.02643).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

SCALE = 400.0
"""P[i beats j] = 1 / (1 + exp(-(r_i - r_j) / SCALE)), as in Vinyals et al. 2019."""
MAX_NEWTON_STEPS = 100


class Disc(NamedTuple):
    """The largest cycle of a table.

    Attributes:
        coordinates: a point (u, v) for each player `[player, 2]`; player i beats j by u_i v_j - v_i u_j, so it beats
            those that are up to half a turn counterclockwise of it.
        share: of the table's squared entries that it explains, in [0, 1].
    """

    coordinates: np.ndarray
    share: float


class Cycles(NamedTuple):
    """How much of who beats whom no rating can show.

    Attributes:
        share: of the weighted squared log-odds, in [0, 1]; chance alone makes it larger than 0.
        p_value: of a share as large, if there were no cycles.
    """

    share: float
    p_value: float


def elo(wins: np.ndarray, games: np.ndarray, *, prior_draws: float = 1.0) -> np.ndarray:
    """The ratings `[player]` under which the results are most likely, with a mean of 0.

        r = argmax sum over pairs of wins_ij log P[i beats j],    P[i beats j] = 1 / (1 + exp(-(r_i - r_j) / SCALE))

    Each player also has `prior_draws` draws against a rating of 0: a player that has won all of its games has a finite
    rating, and one without games has 0.

    Args:
        wins: wins and half of the draws `[player, opponent]`.
        games: their number `[player, opponent]`, symmetric; fractions are allowed.
        prior_draws: more pull the ratings to 0.
    Source: Bradley and Terry 1952, Rank Analysis of Incomplete Block Designs.
    """
    games = np.asarray(games, float) * (1 - np.eye(len(games)))
    won = (np.asarray(wins, float) * (1 - np.eye(len(games)))).sum(1) + 0.5 * prior_draws
    rating = np.zeros(len(games))
    for _ in range(MAX_NEWTON_STEPS):
        expected = _sigmoid(rating[:, None] - rating[None])
        own = _sigmoid(rating)
        gradient = won - (games * expected).sum(1) - prior_draws * own
        step = np.linalg.solve(_information(rating, games, prior_draws), gradient)
        rating += step / max(1.0, float(np.abs(step).max()))  # short enough for Newton's method from 0
        if np.abs(step).max() < 1e-12:
            break
    return np.asarray(SCALE * (rating - rating.mean()))


def elo_covariance(ratings: np.ndarray, games: np.ndarray, *, prior_draws: float = 1.0) -> np.ndarray:
    """The covariance `[player, player]` of ratings that `elo` returned: the inverse of the Fisher information.

    It takes games as independent; draws make the variances larger than they are, never smaller.

    Args:
        ratings: `[player]`.
        games: their number `[player, opponent]`, symmetric; fractions are allowed.
        prior_draws: as given to `elo`.
    """
    games = np.asarray(games, float) * (1 - np.eye(len(games)))
    return np.asarray(SCALE**2 * np.linalg.inv(_information(np.asarray(ratings) / SCALE, games, prior_draws)))


def _information(rating: np.ndarray, games: np.ndarray, prior_draws: float) -> np.ndarray:
    """The Fisher information of ratings `[player]`, in units of SCALE."""
    expected = _sigmoid(rating[:, None] - rating[None])
    own = _sigmoid(rating)
    weight = games * expected * (1 - expected)
    return np.asarray(np.diag(weight.sum(1) + prior_draws * own * (1 - own)) - weight)


def log_odds(wins: np.ndarray, games: np.ndarray, *, prior_draws: float = 1.0) -> np.ndarray:
    """The antisymmetric table of log(p / (1 - p)) `[player, opponent]`, with draws added to each pair; 0: not met."""
    won, played = np.asarray(wins, float), np.asarray(games, float)
    rate = (won + 0.5 * prior_draws) / (played + prior_draws)
    return np.asarray(np.log(rate) - np.log1p(-rate))


def transitive_part(table: np.ndarray) -> np.ndarray:
    """r `[player]`: the mean of each row of an antisymmetric table."""
    return np.asarray(np.asarray(table, float).mean(1))


def cycles(wins: np.ndarray, games: np.ndarray, *, prior_draws: float = 1.0) -> Cycles:
    """The cyclic part of results in which some pairs have not met.

    With the log-odds A of each pair that has met, and the inverse w of their variance, n p (1 - p):

        r = argmin Q(A - r_i + r_j),    Q(X) = sum over pairs of w X^2,    share = Q(A - r_i + r_j) / Q(A)

    Without cycles, Q(A - r_i + r_j) follows a chi-squared distribution with (pairs - players + connected parts) degrees
    of freedom. Draws, `prior_draws` and decayed games make p larger than it is, never smaller.

    Args:
        wins: wins and half of the draws `[player, opponent]`.
        games: their number `[player, opponent]`, symmetric; fractions are allowed.
        prior_draws: added to each pair, which keeps log-odds finite.
    Source: Jiang et al. 2011, "Statistical ranking and combinatorial Hodge theory", section 4 (arXiv:0811.1067).
    """
    played = np.asarray(games, float) * (1 - np.eye(len(games)))
    table = np.where(played > 0, log_odds(wins, played, prior_draws=prior_draws), 0.0)
    rate = _sigmoid(table)
    weight = np.where(played > 0, (played + prior_draws) * rate * (1 - rate), 0.0)
    rating, _, rank, _ = np.linalg.lstsq(np.diag(weight.sum(1)) - weight, (weight * table).sum(1), rcond=1e-10)
    residual = table - (rating[:, None] - rating[None])
    total, cyclic = 0.5 * float((weight * table**2).sum()), 0.5 * float((weight * residual**2).sum())
    n_free = int((played > 0).sum()) // 2 - int(rank)
    if n_free == 0 or total == 0:
        return Cycles(0.0, 1.0)
    return Cycles(cyclic / total, float(chi2.sf(cyclic, n_free)))


def disc_component(table: np.ndarray) -> Disc:
    """The plane on which an antisymmetric table turns most: its best approximation of rank 2.

    i A is Hermitian. From its largest eigenvalue w, with the eigenvector x + iy: A ~ 2 w (y x^T - x y^T).
    """
    antisymmetric = np.asarray(table, float)
    eigenvalues, vectors = np.linalg.eigh(1j * antisymmetric)
    size, vector = max(eigenvalues[-1], 0.0), vectors[:, -1]
    total = float((antisymmetric**2).sum())
    coordinates = np.sqrt(2 * size) * np.stack([vector.imag, vector.real], axis=1)
    return Disc(coordinates, float(2 * size**2 / total) if total > 0 else 0.0)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))
