"""Exact values and exploitabilities of small games."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from marlnb.errors import AnalysisError
from marlnb.populations.ratings.openspiel import nash_conv, policy_values, uniform

pyspiel = pytest.importorskip("pyspiel")
THIRD = 1 / 3


def first_action(state: Any) -> Sequence[float]:
    """Always the first legal action."""
    return [1.0] + [0.0] * (len(state.legal_actions()) - 1)


def kuhn_equilibrium(state: Any) -> list[float]:
    """One of Kuhn's equilibria (alpha = 1/3): probabilities of pass and bet by card and history."""
    bet = {
        "0": THIRD, "1": 0.0, "2": 1.0, "0pb": 0.0, "1pb": 2 * THIRD, "2pb": 1.0,
        "0p": THIRD, "1p": 0.0, "2p": 1.0, "0b": 0.0, "1b": THIRD, "2b": 1.0,
    }  # fmt: skip
    chance = bet[state.information_state_string()]
    return [1 - chance, chance]


def test_kuhn() -> None:
    assert nash_conv("kuhn_poker", uniform) == pytest.approx(11 / 12)
    assert nash_conv("kuhn_poker", first_action) == pytest.approx(2)
    assert nash_conv("kuhn_poker", kuhn_equilibrium) == pytest.approx(0, abs=1e-9)
    assert policy_values("kuhn_poker", kuhn_equilibrium) == pytest.approx((-1 / 18, 1 / 18))


def test_leduc() -> None:
    assert nash_conv("leduc_poker", uniform) == pytest.approx(4.747222222222222)
    assert nash_conv("leduc_poker", first_action) == pytest.approx(2)


def test_a_game_in_which_all_is_visible_equals_openspiels_own_answer() -> None:
    from open_spiel.python.algorithms import exploitability
    from open_spiel.python.policy import UniformRandomPolicy

    game, nim = "tic_tac_toe", "nim(pile_sizes=1;2)"
    loaded = pyspiel.load_game(nim)
    theirs = exploitability.nash_conv(loaded, UniformRandomPolicy(loaded))
    assert nash_conv(nim, uniform) == pytest.approx(theirs)
    first, second = policy_values(game, uniform)
    assert first == pytest.approx(-second) and first > 0.25
    assert nash_conv(game, uniform) > 1


@pytest.mark.parametrize(
    ("game", "policy", "message"),
    [
        ("kuhn_pokr", uniform, "OpenSpiel cannot load the game 'kuhn_pokr'"),
        ("matrix_rps", uniform, "is not turn-based"),
        ("kuhn_poker", lambda state: [1.0], "2 probabilities, one for each of the legal actions"),
    ],
)
def test_errors(game: str, policy: Any, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        nash_conv(game, policy)


def test_without_openspiel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(AnalysisError, match=r"pip install 'marlnb\[openspiel\]'"):
        nash_conv("kuhn_poker", uniform)
