"""GameTree: all states of a small turn-based game as tables, to play many games at once and to evaluate exactly."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from marlnb.envs.games.config import numbered
from marlnb.errors import EnvBuildError

CHANCE, TERMINAL = -1, -2
MAX_STATES = 200_000
RANDOM_GAMES = 2000  # that a tree with merged positions is compared with


@dataclass(frozen=True, eq=False)
class GameTree:
    """The states of a game, each after its parent; state 0 is the beginning.

    An information state holds everything that the player whose turn it is knows; players forget nothing. In games in
    which everything is visible, such as tic-tac-toe, it is a position, and a position that is reached in several ways
    is one state, unless what follows depends on the way, as in Go.

    Attributes:
        player: `[state]`, whose turn it is; CHANCE, or TERMINAL at the end.
        children: `[state, action]`, the next state; -1 where the action is not allowed; of chance, by
            outcome.
        chances: `[state, action]`, the probability of each outcome at chance.
        returns: `[state, player]`, at the end.
        depth: `[state]`, actions and outcomes since the beginning.
        information: `[state]`, number of the information state; -1 at chance and at the end.
        observations: `[state, player, feature]`.
        n_actions: of the players.
        is_merged: whether a state may be reached in several ways.
    """

    player: np.ndarray
    children: np.ndarray
    chances: np.ndarray
    returns: np.ndarray
    depth: np.ndarray
    information: np.ndarray
    observations: np.ndarray
    n_actions: int
    is_merged: bool = False

    @property
    def n_players(self) -> int:
        return int(self.returns.shape[1])

    @property
    def agents(self) -> tuple[str, ...]:
        """`[player]`, their names in the environment."""
        return numbered("player", self.n_players)

    @property
    def n_information_states(self) -> int:
        return int(self.information.max()) + 1

    @property
    def first_of(self) -> np.ndarray:
        """`[information state]`, its first state."""
        return np.unique(self.information, return_index=True)[1][int(self.information.min() < 0) :]

    @property
    def allowed(self) -> np.ndarray:
        """`[state, player action]` bool."""
        return np.asarray(self.children[:, : self.n_actions] >= 0)


def matrix_tree(row_payoffs: Sequence[Sequence[float]]) -> GameTree:
    """A zero-sum matrix game: player 0 chooses the row, then player 1, who does not see it, the column."""
    a = np.asarray(row_payoffs, float)
    n, m = a.shape
    n_states, width = 1 + n + n * m, max(n, m)
    player = np.full(n_states, TERMINAL)
    player[0], player[1 : 1 + n] = 0, 1
    children = np.full((n_states, width), -1)
    children[0, :n] = 1 + np.arange(n)
    children[1 : 1 + n, :m] = 1 + n + np.arange(n * m).reshape(n, m)
    returns = np.zeros((n_states, 2))
    returns[1 + n :] = np.stack((a.ravel(), -a.ravel()), -1)
    observations = np.broadcast_to(np.eye(2), (n_states, 2, 2)).copy()
    depth, information = np.full(n_states, 2), np.full(n_states, -1)
    depth[: 1 + n], information[: 1 + n] = [0, *[1] * n], [0, *[1] * n]
    return GameTree(player, children, np.zeros(children.shape), returns, depth, information, observations, width)


@lru_cache(maxsize=8)
def openspiel_tree(name: str) -> GameTree:
    """A turn-based game of OpenSpiel.

    Raises:
        EnvBuildError: OpenSpiel is not installed, has no such game, or does not have what its players know as numbers;
            or the game is not turn-based or too large.
    """
    try:
        import pyspiel
    except ImportError as error:
        old = "" if sys.version_info >= (3, 11) else "; it needs Python 3.11 or newer"
        raise EnvBuildError(
            f"the states of {name!r} are listed by OpenSpiel, which is not installed{old}: "
            "pip install 'marlnb[openspiel]'. tree/biased_rps needs nothing"
        ) from error
    try:
        game = pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise EnvBuildError(f"OpenSpiel cannot load the game {name!r}: {str(error)[:300]}") from error
    kind = game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise EnvBuildError(f"{name!r} is not turn-based")
    is_visible = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    has_information = kind.provides_information_state_tensor and kind.provides_information_state_string
    if not (kind.provides_observation_tensor if is_visible else has_information):
        what = "observations" if is_visible else "information states"
        raise EnvBuildError(f"OpenSpiel has no {what} of {name!r} as numbers, which agents would observe")
    tree = _list_states(game, name, is_visible, is_merged=is_visible)
    if is_visible and not _plays_as(tree, game):  # a position's text lacks what matters later, such as Go's history
        tree = _list_states(game, name, is_visible, is_merged=False)
    return tree


def _plays_as(tree: GameTree, game: Any) -> bool:
    """Whether players see, may do and earn in random games what a tree of visible positions says."""
    draw = random.Random(0)
    for _ in range(RANDOM_GAMES):
        state, position = game.new_initial_state(), 0
        while not state.is_terminal():
            is_chance = state.is_chance_node()
            actions = [a for a, _ in state.chance_outcomes()] if is_chance else state.legal_actions()
            columns = list(range(len(actions))) if is_chance else actions
            if (
                (CHANCE if is_chance else state.current_player()) != tree.player[position]
                or columns != np.flatnonzero(tree.children[position] >= 0).tolist()
                or not np.array_equal(
                    [state.observation_tensor(p) for p in range(tree.n_players)], tree.observations[position]
                )
            ):
                return False
            index = draw.randrange(len(actions))
            position = tree.children[position, columns[index]]
            state.apply_action(actions[index])
        if tree.player[position] != TERMINAL or state.returns() != tree.returns[position].tolist():
            return False
    return True


def _list_states(game: Any, name: str, is_visible: bool, is_merged: bool) -> GameTree:
    known = _KnownStates(is_merged)
    known.number_of(game.new_initial_state(), depth=0)
    n_players, width = game.num_players(), max(game.num_distinct_actions(), game.max_chance_outcomes())
    numbers: dict[str, int] = {}  # of information states
    player, children, chances, returns, information, observations = [], [], [], [], [], []
    for position, state in enumerate(known.states):  # which grows
        whose = TERMINAL if state.is_terminal() else CHANCE if state.is_chance_node() else state.current_player()
        following, outcomes = [-1] * width, [0.0] * width
        for column, action, chance in _moves(state, whose):
            following[column] = known.number_of(state.child(action), known.depth[position] + 1)
            outcomes[column] = chance
        if len(known.states) > MAX_STATES:
            raise EnvBuildError(f"{name!r} has more than {MAX_STATES:,} states; use openspiel/{name.partition('(')[0]}")
        key = f"{whose} {position if is_visible else state.information_state_string()}" if whose >= 0 else ""
        features = state.observation_tensor if is_visible else state.information_state_tensor
        player.append(whose)
        children.append(following)
        chances.append(outcomes)
        returns.append(state.returns() if whose == TERMINAL else [0.0] * n_players)
        information.append(numbers.setdefault(key, len(numbers)) if key else -1)
        observations.append([features(p) for p in range(n_players)])
    return GameTree(
        player=np.array(player),
        children=np.array(children),
        chances=np.array(chances),
        returns=np.array(returns),
        depth=np.array(known.depth),
        information=np.array(information),
        observations=np.array(observations),
        n_actions=game.num_distinct_actions(),
        is_merged=is_merged,
    )


class _KnownStates:
    """The states so far, and their depths: actions and outcomes since the beginning.

    Attributes:
        is_merged: a position that is reached in several ways after equally many actions is one state.
    """

    def __init__(self, is_merged: bool) -> None:
        self.is_merged = is_merged
        self.states: list[Any] = []
        self.depth: list[int] = []
        self._positions: dict[str, int] = {}

    def number_of(self, state: Any, depth: int) -> int:
        """The number of a state, which is added if it is new."""
        number = len(self.states)
        if self.is_merged:
            number = self._positions.setdefault(f"{depth} {state.current_player()} {state}", number)
        if number == len(self.states):
            self.states.append(state)
            self.depth.append(depth)
        return number


def _moves(state: Any, whose: int) -> Iterator[tuple[int, int, float]]:
    """(column in the tables, action or outcome, its probability at chance or 0) of all that may follow a state."""
    if whose == CHANCE:
        for column, (outcome, chance) in enumerate(state.chance_outcomes()):
            yield column, outcome, chance
    else:
        for action in state.legal_actions():
            yield action, action, 0.0
