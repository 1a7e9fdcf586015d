"""Known answers of matrix games."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from marlnb.populations.ratings.matrix_games import (
    Profile,
    nash_conv,
    project_on_simplex,
    projected_replicator_dynamics,
    zero_sum_nash,
)

RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
BIASED = np.array([[0, -25, 50], [25, 0, -5], [-50, 5, 0]])  # OpenSpiel's matrix_brps
SHAPLEY_ROW = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
SHAPLEY_COLUMN = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])


def fictitious_play(row_payoffs: np.ndarray, n_iterations: int, column_payoffs: np.ndarray | None = None) -> Profile:
    """The average strategies after both players answered, n times, the other's average so far with a best response.

    Both play action 0 first; ties go to the lowest action. The averages of zero-sum games converge to an equilibrium
    (Robinson 1951); those of Shapley's game (1964) do not.
    """
    a, b = row_payoffs, -row_payoffs if column_payoffs is None else column_payoffs
    counts_x, counts_y = np.eye(a.shape[0])[0], np.eye(a.shape[1])[0]
    row_values, column_values = a[:, 0].astype(float), b[0].astype(float)  # against the opponent's counts
    for _ in range(n_iterations):
        row, column = int(row_values.argmax()), int(column_values.argmax())
        counts_x[row] += 1
        counts_y[column] += 1
        row_values += a[:, column]
        column_values += b[row]
    return Profile(counts_x / (n_iterations + 1), counts_y / (n_iterations + 1))


def double_oracle(row_payoffs: np.ndarray) -> Iterator[tuple[Profile, float]]:
    """PSRO with exact best responses: (equilibrium of the actions so far, its NashConv in the game) per iteration.

    Each iteration adds both best responses; it ends when they are not new.

    Source: McMahan et al. 2003.
    """
    a, rows, columns = row_payoffs, [0], [0]
    while True:
        restricted, _ = zero_sum_nash(a[np.ix_(rows, columns)])
        x, y = np.zeros(a.shape[0]), np.zeros(a.shape[1])
        x[rows], y[columns] = restricted
        yield Profile(x, y), nash_conv(a, x, y)
        row, column = int((a @ y).argmax()), int((x @ -a).argmax())
        if row in rows and column in columns:
            return
        rows += [row] if row not in rows else []
        columns += [column] if column not in columns else []


@pytest.mark.parametrize(("game", "expected"), [(RPS, (2, 2, 0)), (BIASED, (50, 10, 0))])
def test_double_oracle_solves_rock_paper_scissors_in_three_iterations(
    game: np.ndarray, expected: tuple[float, ...]
) -> None:
    assert [gap for _, gap in double_oracle(game)] == pytest.approx(expected, abs=1e-6)


def test_the_equilibrium_of_biased_rock_paper_scissors() -> None:
    profile, value = zero_sum_nash(BIASED)
    assert profile.x == pytest.approx([1 / 16, 10 / 16, 5 / 16]) and value == pytest.approx(0, abs=1e-9)
    assert nash_conv(BIASED, *profile) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("game", "expected"),
    [(RPS, (0.3636, 0.1386, 0.0420, 0.0134)), (BIASED, (4.5455, 2.1782, 0.5694, 0.1760))],
)
def test_fictitious_play_converges_at_the_known_rate(game: np.ndarray, expected: tuple[float, ...]) -> None:
    gaps = [nash_conv(game, *fictitious_play(game, n)) for n in (10, 100, 1_000, 10_000)]
    assert gaps == pytest.approx(expected, abs=5e-5)


def test_fictitious_play_does_not_converge_in_shapleys_game() -> None:
    gaps = [
        nash_conv(SHAPLEY_ROW, *fictitious_play(SHAPLEY_ROW, n, SHAPLEY_COLUMN), SHAPLEY_COLUMN)
        for n in np.unique(np.geomspace(100, 20_000, 20).astype(int))
    ]
    assert min(gaps) > 0.1
    third = np.full(3, 1 / 3)
    assert nash_conv(SHAPLEY_ROW, third, third, SHAPLEY_COLUMN) == pytest.approx(0)


def test_projected_replicator_dynamics_equal_openspiels() -> None:
    module = pytest.importorskip("open_spiel.python.algorithms.projected_replicator_dynamics")
    theirs = module.projected_replicator_dynamics(
        [BIASED / 50, -BIASED / 50], prd_iterations=500, prd_dt=1e-2, prd_gamma=1e-3
    )
    ours = projected_replicator_dynamics(BIASED / 50, n_iterations=500, gamma=1e-3)
    assert np.allclose(ours.x, theirs[0]) and np.allclose(ours.y, theirs[1])


def test_the_projection_of_openspiels_example() -> None:
    assert project_on_simplex(np.array([0.4, 0.7, 0.6]), 0.2) == pytest.approx([0.2, 0.45, 0.35])
