"""MatchPolicy: what it passes on to the home player. MatchEnv: the record of a match."""

from __future__ import annotations

from typing import Any, cast

import torch

from marlnb.algorithms.turns import own_turns
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.models.policies.policy import ActContext
from marlnb.populations.league.draws import Pairing
from marlnb.populations.league.players import Side
from marlnb.populations.training.league.match_env import MatchEnv, MatchStart
from marlnb.populations.training.league.match_policy import HOME_CELLS, MatchPolicy, home_rollout
from marlnb.populations.training.league.stacked_opponents import StackedOpponents
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from tests.algorithms.test_turns import GROUP, by_hand
from tests.populations.training.games import RockPaperScissors


def test_correlated_noise_begins_again_with_each_episode() -> None:
    group = GroupSpec("a", ("a_0", "a_1"), ObservationSpec((3,)), ActionSpec("continuous", low=(-1.0,), high=(1.0,)))
    model = MLPConfig(hidden=(8,))
    home = DeterministicPolicy(group, EnvSpec("x", (group,)), model, model, centralised=False, twins=False)
    home.process = (0.15, 1.0)
    home.noise.fill_(0.2)
    opponents = StackedOpponents(group, 4, {}.__getitem__)  # none is seated
    policy = MatchPolicy(group, home, opponents, cast(MatchEnv, None))  # no env is stepped
    home.choose(torch.zeros(4, 2, 3), ActContext())
    policy.begin_episodes(torch.tensor([True, False, True, False]))
    assert home.noise_state is not None
    assert home.noise_state.any(-1).any(-1).tolist() == [False, True, False, True]


def test_each_match_has_its_own_returns() -> None:
    """player_0 wins every match of one step: paper against rock."""
    sides = [Side(name, (name,)) for name in ("player_0", "player_1")]
    pairing = Pairing("pfsp", {"player_0": "home", "player_1": "other"})
    env = MatchEnv(RockPaperScissors().build(1), "home", sides, lambda n: MatchStart(n, pairing, (0, 0), 0))
    env.reset(0)
    for _ in range(3):
        env.step({"player": torch.tensor([[1, 0]])})
    assert [match.returns for match in env.take_finished()] == [(1.0, -1.0)] * 3


def test_an_agent_that_an_opponent_acts_for_does_not_wait() -> None:
    """Both agents act at both steps, and are cut short; the home player is g_0 in one env and g_1 in the other."""
    rollout: Any = torch.cat([by_hand([[1, 1]] * 2, [[1, 2]] * 2, [[0, 0]] * 2, [0, 1])] * 2)
    rollout["next", "g", "truncated"][:, 1] = True
    rollout["g", HOME_CELLS] = home = torch.eye(2, dtype=torch.bool)[:, None].expand(2, 2, 2)
    rollout["paused"] = torch.zeros(2, 2, 1, dtype=torch.bool)
    turns = own_turns(home_rollout(rollout, "g"), GROUP)
    assert torch.equal(turns["g", "acting"], home) and turns["next", "g", "reward"][1, :, 1, 0].tolist() == [1, 2]

    rollout["g", "acting"][1, 0, 0] = False  # there the opponent waits, as in a game of turns
    turns = own_turns(home_rollout(rollout, "g"), GROUP)
    assert turns["g", "acting"].tolist() == [[[True, False], [False, False]], [[False, True], [False, True]]]
