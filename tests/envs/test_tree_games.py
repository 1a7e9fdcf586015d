"""Games whose states are listed: the environment's contract, and the same games as OpenSpiel's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.games.tree import LeducPokerConfig, OpenSpielTreeConfig
from marlnb.envs.games.tree_tables import CHANCE, TERMINAL, GameTree, openspiel_tree
from marlnb.errors import EnvBuildError, EnvError


@pytest.mark.parametrize("name", ["tree/biased_rps", "tree/kuhn_poker", "tree/leduc_poker"])
def test_the_contract(name: str) -> None:
    if name != "tree/biased_rps":
        pytest.importorskip("pyspiel")
    check_vector_env(lambda n_envs: ENVIRONMENTS.get(name)().build(n_envs))


def test_leduc_is_openspiels_game() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    tree = LeducPokerConfig().tree
    assert len(tree.player) == 9457 and tree.n_information_states == 936  # published sizes
    assert np.allclose(tree.chances[tree.player == CHANCE].sum(1), 1)
    check_random_games(tree, pyspiel.load_game("leduc_poker"), 20)


@pytest.mark.parametrize("name", ["tic_tac_toe", "go(board_size=2,max_game_length=8)"])
def test_a_position_plays_the_same_however_it_came_about(name: str) -> None:
    """In Go what is allowed, and when a game ends, depends on earlier positions, which its text does not show."""
    pyspiel = pytest.importorskip("pyspiel")
    tree = openspiel_tree(name)
    assert tree.is_merged == (name == "tic_tac_toe")
    check_random_games(tree, pyspiel.load_game(name), 200)


def check_random_games(tree: GameTree, game: Any, n_games: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(n_games):
        state, position = game.new_initial_state(), 0
        while not state.is_terminal():
            legal = [a for a, _ in state.chance_outcomes()] if state.is_chance_node() else state.legal_actions()
            action = int(rng.choice(legal))
            column = legal.index(action) if state.is_chance_node() else action
            assert state.is_chance_node() or np.flatnonzero(tree.allowed[position]).tolist() == legal
            position = tree.children[position, column]
            state.apply_action(action)
        assert tree.player[position] == TERMINAL and tree.returns[position].tolist() == state.returns()


def test_cards_are_dealt_as_often_as_each_other() -> None:
    pytest.importorskip("pyspiel")
    env = ENVIRONMENTS.get("tree/kuhn_poker")().build(6000)
    observation = env.reset(0).groups["player"].observation
    pairs, counts = torch.unique(observation[..., 2:5].argmax(-1), dim=0, return_counts=True)
    assert len(pairs) == 6 and counts.min() > 880 and counts.max() < 1120  # 1000 each, sd 29


def test_errors() -> None:
    env = ENVIRONMENTS.get("tree/biased_rps")().build(2)
    env.reset(0)
    with pytest.raises(EnvError, match="stepped before"):
        ENVIRONMENTS.get("tree/biased_rps")().build(2).step({})
    pytest.importorskip("pyspiel")
    with pytest.raises(EnvBuildError, match="cannot load the game 'no_game'"):
        OpenSpielTreeConfig(game="no_game").build(2)
    with pytest.raises(EnvBuildError, match="has no information states of 'blackjack' as numbers"):
        openspiel_tree("blackjack")
    with pytest.raises(EnvBuildError, match="not turn-based"):
        openspiel_tree("matrix_rps")
