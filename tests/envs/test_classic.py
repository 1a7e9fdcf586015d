"""PettingZoo's board and card games, env by env against its own turn-based loop, and the contract."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.pettingzoo import installed
from marlnb.envs.steps import random_actions

GAMES = ("tictactoe", "connect_four", "texas_holdem", "leduc_holdem", "texas_holdem_no_limit")
N_ENVS, SEED, N_STEPS = 3, 11, 60


def raw(name: str) -> Any:
    module, _, attribute = installed()[name].partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PettingZoo's about its own spaces
        return getattr(importlib.import_module(module), attribute)()


class Loop:
    """One env in PettingZoo's own loop, and the rewards that `last` returned to each agent."""

    def __init__(self, name: str, index: int) -> None:
        self.env, self.index, self.episode = raw(name), index, 0
        self.start()

    def start(self) -> None:
        self.seed = SEED + self.episode * N_ENVS + self.index
        self.env.reset(seed=self.seed)
        self.rewards = dict.fromkeys(self.env.possible_agents, 0.0)

    def step(self, action: int) -> tuple[bool, dict[str, Any]]:
        """Takes a turn; whether the game ended, and what was seen last."""
        env = self.env
        self.rewards[env.agent_selection] += env.last()[1]
        env.step(action)
        if not (any(env.terminations.values()) or any(env.truncations.values())):
            return False, {}
        seen = {agent: env.observe(agent)["observation"] for agent in env.possible_agents}
        while env.agents:
            self.rewards[env.agent_selection] += env.last()[1]
            env.step(None)
        return True, seen


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", GAMES)
def test_equals_pettingzoos_own_loop(name: str, workers: int) -> None:
    loops = [Loop(name, index) for index in range(N_ENVS)]
    generator, paid = torch.Generator().manual_seed(0), np.zeros((N_ENVS, 2))
    with ENVIRONMENTS.get(f"pettingzoo/{name}")(workers=workers).build(N_ENVS) as env:
        (group,) = env.spec.groups
        step = env.reset(SEED)
        rows = step.groups[group.name]
        for _ in range(N_STEPS):
            for loop in loops:
                for i, agent in enumerate(group.agents):
                    seen = loop.env.observe(agent)
                    is_next = agent == loop.env.agent_selection
                    expected = seen["observation"].astype(np.float32)
                    np.testing.assert_array_equal(rows.observation[loop.index, i].numpy(), expected)
                    assert bool(rows.acting[loop.index, i]) == is_next and bool(rows.alive[loop.index, i])
                    assert rows.action_mask is not None
                    mask = seen["action_mask"].astype(bool) if is_next else np.ones(group.action.n_logits, bool)
                    np.testing.assert_array_equal(rows.action_mask[loop.index, i].numpy(), mask)
            actions = random_actions(env, step, generator)
            mover = rows.acting.int().argmax(1)
            step = env.step(actions)
            paid += rows.reward.numpy()
            for loop in loops:
                b = loop.index
                ended, last = loop.step(int(actions[group.name][b, mover[b]]))
                assert bool(step.done[b]) == ended
                assert rows.terminated[b].tolist() == [ended, ended] and not rows.truncated.any()
                if ended:
                    for i, agent in enumerate(group.agents):
                        np.testing.assert_array_equal(
                            rows.final_observation[b, i].numpy(), last[agent].astype(np.float32)
                        )
                    np.testing.assert_allclose(paid[b], [loop.rewards[agent] for agent in group.agents])
                    paid[b] = 0
                    loop.episode += 1
                    loop.start()
                assert int(step.episode_seed[b]) == loop.seed
    assert min(loop.episode for loop in loops) >= 1


@pytest.mark.parametrize("name", GAMES)
def test_the_contract(name: str) -> None:
    check_vector_env(lambda n_envs: ENVIRONMENTS.get(f"pettingzoo/{name}")(workers=0).build(n_envs))


def test_installed_games_are_listed_as_turn_based() -> None:
    games = installed()
    assert games["tictactoe"] == "pettingzoo.classic.tictactoe.tictactoe:env"
    assert {*GAMES, "chess", "go"} <= set(games)
    assert games["rps"].endswith(":parallel_env")


def test_card_games_need_no_torch() -> None:
    """A worker process that played hold'em has not loaded torch."""
    code = (
        "import sys\n"
        "from marlnb.envs.workers.source import EnvSource\n"
        "EnvSource('x', 'pettingzoo.classic.rlcard_envs.texas_holdem:env').make().reset(0)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


def test_four_players_of_holdem() -> None:
    kind = ENVIRONMENTS.get("pettingzoo/texas_holdem")
    check_vector_env(lambda n_envs: kind(workers=0, kwargs={"num_players": 4}).build(n_envs))


def test_a_board_is_drawn() -> None:
    with ENVIRONMENTS.get("pettingzoo/tictactoe")(workers=0, render=True, kwargs={"screen_height": 90}).build(1) as env:
        env.draw_ends()
        env.reset(0)
        assert env.render().shape == (90, 90, 3) and env.end_picture() is None
        empty, won = env.render(), {"player": torch.tensor([[2, 2]])}
        for square in (0, 3, 1, 4):
            env.step({"player": torch.tensor([[square, square]])})
        before = env.render()
        assert env.step(won).done.all()
        changed = (env.end_picture() != before).any(-1).nonzero()  # type: ignore[union-attr]
        assert changed[0].min() > 60 and changed[1].max() < 30, "the first player's third mark, bottom left"
        np.testing.assert_array_equal(env.render(), empty)
