"""The faster equivalents of known environments, step by step against their own parallel_env."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marlnb.envs.pettingzoo import installed
from marlnb.envs.workers import fast_parallel
from marlnb.envs.workers.source import EnvSource


@pytest.mark.parametrize(
    ("name", "kwargs", "way"),
    [
        ("multiwalker", {"max_cycles": 50}, fast_parallel.MultiWalker),
        ("multiwalker", {"terminate_on_fall": False, "max_cycles": 100}, fast_parallel.MultiWalker),
        (
            "multiwalker",
            {"terminate_on_fall": False, "remove_on_fall": False, "shared_reward": False},
            fast_parallel.MultiWalker,
        ),
        ("multiwalker", {"n_walkers": 1, "max_cycles": 30}, fast_parallel.MultiWalker),
        ("simple_spread", {}, fast_parallel.SimpleEnvScenarios),
        ("simple_spread", {"continuous_actions": True, "N": 5, "local_ratio": 0.2}, fast_parallel.SimpleEnvScenarios),
        ("simple_tag", {}, fast_parallel.SimpleEnvScenarios),
        ("simple_world_comm", {}, fast_parallel.SimpleEnvScenarios),
        ("simple_crypto", {"continuous_actions": True}, fast_parallel.SimpleEnvScenarios),
        ("simple_reference", {}, fast_parallel.SimpleEnvScenarios),
        ("knights_archers_zombies", {"spawn_delay": 3}, fast_parallel.KnightsArchersZombies),
        (
            "knights_archers_zombies",
            {"spawn_delay": 3, "obs_method": "vector-masked", "line_death": True},
            fast_parallel.KnightsArchersZombies,
        ),
        ("knights_archers_zombies", {"obs_method": "image", "max_cycles": 10}, fast_parallel.KnightsArchersZombies),
        ("pistonball", {"n_pistons": 4, "render_mode": "rgb_array", "max_cycles": 30}, fast_parallel.Pistonball),
        ("pistonball", {"n_pistons": 4, "continuous": False, "max_cycles": 30}, fast_parallel.Pistonball),
        ("cooperative_pong", {"render_mode": "rgb_array"}, fast_parallel.CooperativePong),
        ("pursuit", {"max_cycles": 20, "n_evaders": 5, "n_pursuers": 3}, fast_parallel.FastParallel),
    ],
)
def test_equal_to_the_stock_environment(name: str, kwargs: dict[str, Any], way: type) -> None:
    source = EnvSource(name, installed()[name], kwargs)
    stock, short = source.make(), fast_parallel.fast_parallel(source.make())
    assert type(short) is way
    spaces = {agent: stock.action_space(agent) for agent in stock.possible_agents}
    for seed in range(2):
        if name == "knights_archers_zombies":
            stock = source.make()  # its own reset leaves the time to the next zombie as it was
        for number, space in enumerate(spaces.values()):
            space.seed(100 * seed + number)
        assert_equal(stock.reset(seed=seed)[0], short.reset(seed=seed)[0])
        for _ in range(150):
            actions = {agent: spaces[agent].sample() for agent in stock.agents}
            for expected, actual in zip(stock.step(actions)[:4], short.step(actions)[:4]):
                assert_equal(expected, actual)
            assert stock.agents == short.agents
            if not stock.agents:
                break


def assert_equal(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    assert list(expected) == list(actual)
    for agent, value in expected.items():
        assert np.asarray(value).dtype == np.asarray(actual[agent]).dtype
        np.testing.assert_array_equal(value, actual[agent])


def test_anything_else_is_stepped_as_it_comes() -> None:
    from tests.envs.sample_envs import Scripted

    env = Scripted()
    assert fast_parallel.fast_parallel(env) is env
    rps = EnvSource("rps", installed()["rps"]).make()
    assert fast_parallel.fast_parallel(rps) is rps
