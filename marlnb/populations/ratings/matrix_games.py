"""Matrix games of two players: equilibria, their distance, and ways to find them.

`row_payoffs` and `column_payoffs` are `[row action, column action]`; x `[row action]` and y `[column action]` are mixed
strategies. Without `column_payoffs` the game is zero-sum: they are -row_payoffs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Profile(NamedTuple):
    """A mixed strategy of each player: x `[row action]`, y `[column action]`."""

    x: np.ndarray
    y: np.ndarray


def nash_conv(row_payoffs: np.ndarray, x: np.ndarray, y: np.ndarray, column_payoffs: np.ndarray | None = None) -> float:
    """What both players together could gain by the best response to the other; 0 in a Nash equilibrium.

    NashConv = max_i (A y)_i - x A y + max_j (x B)_j - x B y

    Source: Lanctot et al. 2017, section 2 (arXiv:1711.00832). In a zero-sum game exploitability is half of it.
    """
    a, b = _both(row_payoffs, column_payoffs)
    return float((a @ y).max() - x @ a @ y + (x @ b).max() - x @ b @ y)


def zero_sum_nash(row_payoffs: np.ndarray) -> tuple[Profile, float]:
    """A Nash equilibrium of a zero-sum game, and its value for the row player, by linear programming.

    max v  such that  (x A)_j >= v for all j,  sum x = 1,  x >= 0;   y from the same program for -A^T
    """
    a = np.asarray(row_payoffs, float)
    x, value = _maximin(a)
    y, _ = _maximin(-a.T)
    return Profile(x, y), value


def projected_replicator_dynamics(
    row_payoffs: np.ndarray,
    column_payoffs: np.ndarray | None = None,
    *,
    n_iterations: int = 10_000,
    dt: float = 1e-2,
    gamma: float = 1e-6,
) -> Profile:
    """The average of strategies that follow the replicator dynamics, with each probability kept at gamma or more.

    x <- P(x + dt x (A y - x A y)),   P: the nearest strategy with all probabilities >= gamma

    Both start from the uniform strategy.

    Source: Lanctot et al. 2017, section 3.3 (arXiv:1711.00832).
    """
    a, b = _both(row_payoffs, column_payoffs)
    x, y = (np.full(n, 1 / n) for n in a.shape)
    sum_x, sum_y = x.copy(), y.copy()
    for _ in range(n_iterations):
        row_values, column_values = a @ y, x @ b
        x, y = (
            project_on_simplex(x + dt * x * (row_values - x @ row_values), gamma),
            project_on_simplex(y + dt * y * (column_values - y @ column_values), gamma),
        )
        sum_x += x
        sum_y += y
    return Profile(sum_x / (n_iterations + 1), sum_y / (n_iterations + 1))


def project_on_simplex(values: np.ndarray, minimum: float = 0.0) -> np.ndarray:
    """The nearest distribution (L2) with all probabilities at least `minimum`.

    Source: Wang and Carreira-Perpinan 2013 (arXiv:1309.1541).
    """
    n = len(values)
    descending = np.sort(values)[::-1]
    rank = np.arange(1, n + 1)
    shifts = (1 - np.cumsum(descending) - (n - rank) * minimum) / rank
    above = np.flatnonzero(descending + shifts > minimum)
    shift = shifts[above[-1]] if len(above) else shifts[0]
    return np.asarray(np.maximum(values + shift, minimum))


def _maximin(a: np.ndarray) -> tuple[np.ndarray, float]:
    from scipy.optimize import linprog

    n, m = a.shape
    solved = linprog(
        np.r_[np.zeros(n), -1.0],
        A_ub=np.c_[-a.T, np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
        method="highs",
    )
    x = np.maximum(solved.x[:n], 0)
    return x / x.sum(), float(solved.x[n])


def _both(row_payoffs: np.ndarray, column_payoffs: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    a = np.asarray(row_payoffs, float)
    return a, -a if column_payoffs is None else np.asarray(column_payoffs, float)
