"""Environments that break PettingZoo's API: the error names the copy, the agent, what came and what is asked for."""

from __future__ import annotations

import re

import pytest
import torch

from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.errors import EnvBuildError, EnvError
from tests.envs import sample_envs

FIVE = re.escape("(observations, rewards, terminations, truncations, infos), each a dict by agent")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "four parts",
            rf"step returned 4 values \(dict, dict, dict, dict\); PettingZoo's API requires .*{FIVE}",
        ),
        ("flags of all", rf"step returned a bool as terminations; .*{FIVE}"),
        ("a reward less", r"rewards lack agent 'a_1'; got \['a_0'\]"),
        ("an unknown agent sees", r"contain agent 'b_0', which is not among possible_agents \['a_0', 'a_1', 'a_2'\]"),
        ("flags as RLlib's", rf"terminations lack agent 'a_0'; got \['__all__'\]; '__all__' is RLlib's.*{FIVE}"),
        ("a flag less", r"truncations lack agent 'a_1'; got \['a_0'\]"),
        ("rewards of two", r"the reward of agent 'a_1' is array\(\[0., 0.\]\); expected a number"),
    ],
)
def test_a_step_that_violates_the_api(how: str, message: str, workers: int) -> None:
    env = pettingzoo_vector_env(sample_envs.Breaking, 2, workers=workers, kwargs={"how": how})
    env.reset(7)
    where = "Breaking: env 0 failed in step 1 of the episode with seed 7: "
    with pytest.raises(EnvError, match=rf"^{where}(.*){message}") as caught:
        env.step({"a": torch.zeros(2, 3, dtype=torch.int64)})
    assert "Traceback" not in str(caught.value)


def test_a_missing_reward_when_an_agent_ends() -> None:
    env = pettingzoo_vector_env(sample_envs.Breaking, 1, workers=0, kwargs={"how": "a last reward less"})
    env.reset(0)
    for _ in range(2):
        env.step({"a": torch.zeros(1, 3, dtype=torch.int64)})
    with pytest.raises(EnvError, match=r"in step 3 .*rewards lack agent 'a_1'; got \['a_0', 'a_2'\]"):
        env.step({"a": torch.zeros(1, 3, dtype=torch.int64)})


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reset_that_violates_the_api(workers: int) -> None:
    asked = re.escape("PettingZoo's API requires reset(seed=None, options=None) to return (observations, infos)")
    with pytest.raises(EnvBuildError, match=rf"Breaking: reset returned a dict of \['a_0', 'a_1'\]; {asked}"):
        pettingzoo_vector_env(sample_envs.Breaking, 1, workers=workers, kwargs={"how": "reset without infos"})
    with pytest.raises(EnvBuildError, match=rf"Unseeded: .*unexpected keyword argument 'seed'; {asked}"):
        pettingzoo_vector_env(sample_envs.Unseeded, 1, workers=workers)
    env = pettingzoo_vector_env(sample_envs.Breaking, 1, workers=workers, kwargs={"how": "an unknown agent is reset"})
    with pytest.raises(
        EnvError,
        match=r"while being reset to the episode with seed 3: agent 'b_0' after reset is not among possible_agents",
    ):
        env.reset(3)


def test_violations_of_environments_whose_agents_wait() -> None:
    env = pettingzoo_vector_env(sample_envs.Breaking, 1, workers=0, agents_wait=True, kwargs={"how": "four parts"})
    env.reset(0)
    with pytest.raises(EnvError, match=rf"step returned 4 values .*{FIVE}"):
        env.step({"a": torch.zeros(1, 3, dtype=torch.int64)})


def test_an_error_of_the_environments_own_keeps_its_traceback() -> None:
    env = pettingzoo_vector_env(sample_envs.Raising, 1, workers=1, kwargs={"seed": 0})
    env.reset(0)
    env.step({"a": torch.zeros(1, 3, dtype=torch.int64)})
    with pytest.raises(EnvError, match="Raising: env 0 failed in step 2") as caught:
        env.step({"a": torch.zeros(1, 3, dtype=torch.int64)})
    assert "Traceback" in str(caught.value) and "the ball is nowhere" in str(caught.value)
