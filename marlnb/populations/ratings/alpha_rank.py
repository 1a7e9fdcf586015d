"""Alpha-rank: how long evolving populations stay with each strategy. It ranks players of cyclic games too."""

from __future__ import annotations

import numpy as np


def alpha_rank(payoffs: np.ndarray, *, m: int = 50, alpha: float = 10.0) -> np.ndarray:
    """Share of the time `[strategy]` that a population spends with each strategy.

    A mutant of strategy r in a population of m - 1 players of strategy s takes it over with the probability

        rho = 1 / (1 + sum_{l=1}^{m-1} prod_{k=1}^{l} exp(-alpha (f_r(k) - f_s(k)))),    k: number of mutants
        f_r(k) = ((k - 1) M[r, r] + (m - k) M[r, s]) / (m - 1)
        f_s(k) = (k M[s, r] + (m - k - 1) M[s, s]) / (m - 1)

    and the result is the stationary distribution of the chain with transitions rho / (n - 1).

    Args:
        payoffs: M `[strategy, other strategy]`, of the row's player, as P[row beats column].
        m: size of the population.
        alpha: intensity of the selection.
    Source: Omidshafiei et al. 2019 (arXiv:1903.01373), sections 2.4 and 2.5.
    """
    table = np.asarray(payoffs, float)
    n, k = len(table), np.arange(1, m)
    transitions = np.zeros((n, n))
    for s in range(n):
        for r in range(n):
            if r == s:
                continue
            mutants = ((k - 1) * table[r, r] + (m - k) * table[r, s]) / (m - 1)
            residents = (k * table[s, r] + (m - k - 1) * table[s, s]) / (m - 1)
            transitions[s, r] = _fixation(np.cumsum(-alpha * (mutants - residents))) / (n - 1)
    return stationary_distribution(transitions)


def alpha_rank_of_two(
    row_payoffs: np.ndarray, column_payoffs: np.ndarray, *, m: int = 50, alpha: float = 10.0
) -> tuple[np.ndarray, np.ndarray]:
    """Alpha-rank of two populations, as of the two sides of an asymmetric game: a share for each row and each column.

    A mutant meets the other population's strategy whatever their number is, so f_r - f_s is the difference of their
    payoffs against it.

    Args:
        row_payoffs: of the rows' population `[row, column]`.
        column_payoffs: of the columns' population `[row, column]`.
        m: size of each population.
        alpha: intensity of the selection.
    """
    a, b = np.asarray(row_payoffs, float), np.asarray(column_payoffs, float)
    n_rows, n_columns = a.shape
    n_moves = max(1, n_rows - 1 + n_columns - 1)
    steps = np.arange(1, m)
    transitions = np.zeros((a.size, a.size))
    for row in range(n_rows):
        for column in range(n_columns):
            state = row * n_columns + column
            for other in range(n_rows):
                gain = a[other, column] - a[row, column]
                transitions[state, other * n_columns + column] = _fixation(-alpha * gain * steps) / n_moves
            for other in range(n_columns):
                gain = b[row, other] - b[row, column]
                transitions[state, row * n_columns + other] = _fixation(-alpha * gain * steps) / n_moves
    np.fill_diagonal(transitions, 0)
    shares = stationary_distribution(transitions).reshape(a.shape)
    return shares.sum(1), shares.sum(0)


def stationary_distribution(transitions: np.ndarray) -> np.ndarray:
    """The stationary distribution of a Markov chain, from its rates between different states `[from, to]`.

    Source: Grassmann, Taksar and Heyman 1985. It only adds, multiplies and divides, so tiny rates stay exact.
    """
    rates = np.array(transitions, float)
    n = len(rates)
    for state in range(n - 1, 0, -1):
        leaving = rates[state, :state].sum()
        rates[:state, state] /= max(leaving, np.finfo(float).tiny)
        rates[:state, :state] += np.outer(rates[:state, state], rates[state, :state])
    shares = np.zeros(n)
    shares[0] = 1
    for state in range(1, n):
        shares[state] = shares[:state] @ rates[:state, state]
    return shares / shares.sum()


def _fixation(exponents: np.ndarray) -> float:
    """1 / (1 + sum exp(exponents)), at least the smallest normal number."""
    largest = max(0.0, float(exponents.max(initial=0.0)))
    log_sum = largest + np.log(np.exp(-largest) + np.exp(exponents - largest).sum())
    return float(max(np.exp(-log_sum), np.finfo(float).tiny))
