"""Exact evaluation of policies in small games, by OpenSpiel: Kuhn poker, Leduc poker, tic-tac-toe and others.

OpenSpiel is optional and needs Python 3.11. A policy is a function of OpenSpiel's state: it returns the probability of
each legal action of the player whose turn it is, in the order of `state.legal_actions()`, and must not look at what
that player cannot know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from marlnb.errors import AnalysisError

Policy = Callable[[Any], Sequence[float]]
MAX_STATES = 1_000_000


def uniform(state: Any) -> Sequence[float]:
    """All legal actions are equally likely."""
    n_actions = len(state.legal_actions())
    return [1 / n_actions] * n_actions


def nash_conv(game: str, policy: Policy) -> float:
    """What the players could gain in sum if each of them best responded to the others; 0 in an equilibrium.

    Exploitability is the mean over players: NashConv / number of players.

    Args:
        game: OpenSpiel's name, as "kuhn_poker", "leduc_poker", "tic_tac_toe" or "leduc_poker(players=3)".
        policy: of all players.
    Raises:
        AnalysisError: OpenSpiel is not installed, the game is unknown or not turn-based, or too large.
    """
    pyspiel, loaded = _load(game)
    if loaded.get_type().information == pyspiel.GameType.Information.PERFECT_INFORMATION:
        own = _values(loaded, policy)
        return sum(_best_value(loaded, policy, player) - own[player] for player in range(loaded.num_players()))
    table = pyspiel.TabularPolicy(_table(loaded, policy))
    return float(pyspiel.nash_conv(loaded, table, False))


def policy_values(game: str, policy: Policy) -> tuple[float, ...]:
    """The expected return of each player if all of them follow a policy.

    Raises:
        AnalysisError: as `nash_conv`.
    """
    return _values(_load(game)[1], policy)


def _load(game: str) -> tuple[Any, Any]:
    try:
        import pyspiel
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        hint = "" if sys.version_info >= (3, 11) else f"; it needs Python 3.11 or newer, and this is {version}"
        raise AnalysisError(
            f"exact exploitability of {game!r} is computed by OpenSpiel, which is not installed{hint}: "
            "pip install 'marlnb[openspiel]'. Matrix games need nothing: marlnb.populations.ratings.matrix_games"
        ) from error
    try:
        loaded = pyspiel.load_game(game)
    except pyspiel.SpielError as error:
        raise AnalysisError(f"OpenSpiel cannot load the game {game!r}: {str(error)[:300]}") from error
    if loaded.get_type().dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise AnalysisError(f"{game!r} is not turn-based; matrix games: marlnb.populations.ratings.matrix_games")
    return pyspiel, loaded


def _values(game: Any, policy: Policy) -> tuple[float, ...]:
    cache: dict[str, tuple[float, ...]] = {}

    def value(state: Any) -> tuple[float, ...]:
        if state.is_terminal():
            return tuple(state.returns())
        key = _position(state)
        if key not in cache:
            _check_size(game, cache)
            outcomes = list(_outcomes(state, policy))
            values = [[chance * part for part in value(child)] for chance, child in outcomes]
            cache[key] = tuple(map(sum, zip(*values)))
        return cache[key]

    return value(game.new_initial_state())


def _best_value(game: Any, policy: Policy, player: int) -> float:
    """The return of a player that best responds, in a game in which everything is visible."""
    cache: dict[str, float] = {}

    def value(state: Any) -> float:
        if state.is_terminal():
            return float(state.returns()[player])
        key = _position(state)
        if key not in cache:
            _check_size(game, cache)
            if state.current_player() == player:
                cache[key] = max(value(state.child(action)) for action in state.legal_actions())
            else:
                cache[key] = sum(chance * value(child) for chance, child in _outcomes(state, policy))
        return cache[key]

    return value(game.new_initial_state())


def _outcomes(state: Any, policy: Policy) -> Iterator[tuple[float, Any]]:
    """(probability, next state) of everything that can happen."""
    if state.is_chance_node():
        yield from ((chance, state.child(action)) for action, chance in state.chance_outcomes())
        return
    for action, chance in zip(state.legal_actions(), _probabilities(state, policy)):
        if chance > 0:
            yield chance, state.child(action)


def _probabilities(state: Any, policy: Policy) -> list[float]:
    legal, chances = state.legal_actions(), [float(chance) for chance in policy(state)]
    if len(chances) != len(legal) or min(chances) < 0 or abs(sum(chances) - 1) > 1e-4:
        expected = f"{len(legal)} probabilities, one for each of the legal actions {legal}, with the sum 1"
        raise AnalysisError(f"a policy returns {expected}; got {chances}")
    return [chance / sum(chances) for chance in chances]


def _table(game: Any, policy: Policy) -> dict[str, list[tuple[int, float]]]:
    """The policy's probabilities by information state."""
    table: dict[str, list[tuple[int, float]]] = {}
    pending, n_states = [game.new_initial_state()], 0
    while pending:
        state = pending.pop()
        n_states += 1
        if n_states > MAX_STATES:
            raise _too_large(game)
        if state.is_terminal():
            continue
        if not state.is_chance_node() and (key := state.information_state_string()) not in table:
            table[key] = list(zip(state.legal_actions(), _probabilities(state, policy)))
        pending += [state.child(action) for action in state.legal_actions()]
    return table


def _position(state: Any) -> str:
    """Equal for states with the same future: everything that the state holds, hidden cards included."""
    return f"{state.current_player()} {state}"


def _check_size(game: Any, states: dict[str, Any]) -> None:
    if len(states) > MAX_STATES:
        raise _too_large(game)


def _too_large(game: Any) -> AnalysisError:
    return AnalysisError(f"{game} has more than {MAX_STATES:,} states: too many for an exact evaluation")
