"""Nash averaging: a rating that does not change when copies of a player are added, and that cycles do not fool."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marlnb.populations.ratings.matrix_games import zero_sum_nash

TOLERANCE = 1e-9  # of payoffs, relative to the largest one


class NashAverage(NamedTuple):
    """The equilibrium of largest entropy, and the ratings under it.

    Attributes:
        shares: probability of each player `[player]`.
        ratings: each player's payoff against the equilibrium `[player]`: 0 for those in it, at most 0 for others.
    """

    shares: np.ndarray
    ratings: np.ndarray


def nash_averaging(table: np.ndarray) -> NashAverage:
    """Nash averaging of an antisymmetric table `[player, opponent]`, as log-odds or 2 P[player beats opponent] - 1.

    p = the Nash equilibrium of largest entropy of the zero-sum game A,    rating = A p

    Source: Balduzzi et al. 2018, "Re-evaluating evaluation", section 5 (arXiv:1806.02643).
    """
    shares = max_entropy_strategy(table)
    return NashAverage(shares, np.asarray(table, float) @ shares)


def relative_population_performance(win_rates: np.ndarray) -> float:
    """How often population A beats population B, if both mix their players by the equilibrium of the game between them.

    Nash(P_AB)^T P_AB Nash(P_BA), in [0, 1]; above 1/2: A is ahead.

    Args:
        win_rates: P_AB `[player of A, player of B]`.
    Source: Balduzzi et al. 2019, section 3 (arXiv:1901.08106); Vinyals et al. 2019, Methods, "Evaluation".
    """
    return zero_sum_nash(win_rates)[1]


def max_entropy_strategy(payoffs: np.ndarray) -> np.ndarray:
    """Of all optimal strategies of the row player in a zero-sum game, that of the largest entropy `[row]`.

    They are the p with p^T (A - v) >= 0, v the value of the game. The rows that some of them use are found by a linear
    program. Among these, p_i = exp(sum_j l_j (A_ij - v)) / Z with the multipliers l >= 0 that minimise log Z.
    """
    from scipy.optimize import minimize

    table = np.asarray(payoffs, float)
    scale = float(np.abs(table).max()) or 1.0
    table = table / scale
    gains = table - zero_sum_nash(table)[1]
    used = np.flatnonzero(_usable(gains))
    kept = gains[used]
    no_row = np.zeros(gains.shape[1])

    def log_normaliser(multipliers: np.ndarray) -> tuple[float, np.ndarray]:
        exponents = kept @ multipliers
        largest = exponents.max()
        weights = np.exp(exponents - largest)
        return float(largest + np.log(weights.sum())), weights @ kept / weights.sum()

    solved = minimize(
        log_normaliser,
        no_row,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(no_row),
        options={"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    weights = np.exp(kept @ solved.x - (kept @ solved.x).max())
    shares = np.zeros(len(table))
    shares[used] = weights / weights.sum()
    return shares


def _usable(gains: np.ndarray) -> np.ndarray:
    """Whether an optimal strategy uses each row: max sum t, t <= q, t <= 1, of q >= 0 with q^T gains >= 0."""
    from scipy.optimize import linprog

    n, m = gains.shape
    identity = np.eye(n)
    solved = linprog(
        np.r_[np.zeros(n), -np.ones(n)],
        A_ub=np.block([[-(gains + TOLERANCE).T, np.zeros((m, n))], [-identity, identity]]),
        b_ub=np.zeros(m + n),
        bounds=[(0, 1e3)] * n + [(0, 1)] * n,
        method="highs",
    )
    return np.asarray(solved.x[n:] > 0.5)
