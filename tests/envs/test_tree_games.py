"""Games whose states are listed: the environment's contract, and the same games as OpenSpiel's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.games.tree import LeducPokerConfig, OpenSpielTreeConfig
from marlnb.envs.games.tree_tables import CHANCE, TERMINAL, openspiel_tree
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
    game, rng = pyspiel.load_game("leduc_poker"), np.random.default_rng(0)
    for _ in range(20):
        state, position = game.new_initial_state(), 0
        while not state.is_terminal():
            legal = [a for a, _ in state.chance_outcomes()] if state.is_chance_node() else state.legal_actions()
            action = int(rng.choice(legal))
            column = legal.index(action) if state.is_chance_node() else action
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
    with pytest.raises(EnvBuildError, match="not turn-based"):
        openspiel_tree("matrix_rps")
