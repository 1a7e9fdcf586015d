"""Environments whose agents wait for one another: turn by turn, and at different rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.pettingzoo import CustomConfig
from marlnb.errors import ConfigError, EnvError
from tests.envs.sample_turns import OnlyAtEvenTimes, Rates, Relay, Stuck, Undead

RELAY = "tests.envs.sample_turns:Relay"


def ones() -> dict[str, torch.Tensor]:
    return {"r": torch.ones(2, 3, dtype=torch.int64)}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dead_first", [True, False])
def test_turns_by_hand(workers: int, dead_first: bool) -> None:
    """Action 1 at every move: at move t the mover pays 1, the others are given 10 t + 1."""
    made = CustomConfig(entry_point=RELAY, kwargs={"dead_first": dead_first}, workers=workers)
    with made.build(2) as env:
        assert not env.spec.simultaneous and env.spec.group_names == ("r",)
        rows = env.reset(5).groups["r"]
        assert rows.alive.all() and rows.acting.tolist() == [[True, False, False]] * 2
        assert rows.observation[1].tolist() == [[0, 0, 0, 6], [0, 1, 0, 6], [0, 2, 0, 6]]
        acting, alive, rewards = [], [], []
        for t in range(1, 7):
            step = env.step(ones())
            acting.append(rows.acting[1].int().tolist())
            alive.append(rows.alive[1].int().tolist())
            rewards.append(rows.reward[1].tolist())
            assert rows.terminated[1].tolist() == [False, t == 4, False] and not rows.truncated.any()
            assert not step.done.any() and not rows.observation[~rows.alive].any()
            if t == 4:
                assert rows.final_observation[1, 1, :2].tolist() == [4, 1]
        assert acting == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]]
        assert alive == [[1, 1, 1]] * 3 + [[1, 0, 1]] * 3
        assert rewards == [[-1, 11, 11], [21, -1, 21], [31, 31, -1], [-1, 41, 41], [51, 0, -1], [-1, 0, 61]]
        step = env.step(ones())
        assert rows.reward[1].tolist() == [71, 0, -1] and step.done.all() and step.episode_seed.tolist() == [7, 8]
        assert rows.truncated[1].tolist() == [True, False, True] and not rows.terminated.any()
        assert rows.final_observation[1, [0, 2], 0].tolist() == [7, 7]
        assert rows.final_observation[1, [0, 2], 3].tolist() == [6, 6]  # the seed of the episode that ended
        assert rows.acting.tolist() == [[True, False, False]] * 2 and rows.observation[1, 0].tolist() == [0, 0, 0, 8]


@pytest.mark.parametrize("where", ["observation", "info"])
def test_masks_are_those_of_the_mover(where: str) -> None:
    with pettingzoo_vector_env(Relay, 1, workers=0, kwargs={"mask": where}) as env:
        assert env.spec.groups[0].has_action_mask and env.spec.groups[0].observation.shape == (4,)
        rows = env.reset(0).groups["r"]
        assert rows.action_mask is not None
        for t in range(6):
            mover = int(rows.acting[0].nonzero())
            for agent in range(3):
                allowed = [True, True, t % 2 == 0] if agent == mover else [True] * 3
                assert rows.action_mask[0, agent].tolist() == allowed
            env.step({"r": torch.zeros(1, 3, dtype=torch.int64)})


def test_an_environment_may_fill_the_same_arrays_for_each_agent() -> None:
    """As one that draws the same board from each player's view."""

    class Refilled(Relay):
        def observe(self, agent: str) -> Any:
            view = super().observe(agent)
            if not hasattr(self, "arrays"):
                self.arrays = view
            for name, array in self.arrays.items():
                array[...] = view[name]
            return self.arrays

    fresh, refilled = (
        pettingzoo_vector_env(kind, 1, workers=0, kwargs={"mask": "observation"}) for kind in (Relay, Refilled)
    )
    with fresh, refilled:
        expected, rows = fresh.reset(0).groups["r"], refilled.reset(0).groups["r"]
        for _ in range(9):  # r_1 dies in the fourth move, and the seventh ends the episode
            assert torch.equal(rows.observation, expected.observation) and torch.equal(rows.acting, expected.acting)
            assert torch.equal(rows.action_mask, expected.action_mask)
            assert torch.equal(rows.final_observation, expected.final_observation)
            fresh.step({"r": torch.zeros(1, 3, dtype=torch.int64)})
            refilled.step({"r": torch.zeros(1, 3, dtype=torch.int64)})


def test_masks_in_infos_hold_for_groups_apart() -> None:
    groups = {"first": ["r_0"], "rest": ["r_1", "r_2"]}
    with pettingzoo_vector_env(Relay, 1, workers=0, kwargs={"mask": "info"}, groups=groups) as env:
        assert all(group.has_action_mask for group in env.spec.groups)


@pytest.mark.parametrize("kwargs", [{}, {"dead_first": False}, {"mask": "observation"}, {"mask": "info"}])
def test_relay_keeps_the_contract(kwargs: dict[str, Any]) -> None:
    check_vector_env(lambda n_envs: pettingzoo_vector_env(Relay, n_envs, workers=0, kwargs=kwargs))


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("workers", [0, 1])
def test_different_rates_by_hand(leaves: bool, workers: int) -> None:
    options = {"kwargs": {"leaves": leaves}, "workers": workers, "agents_wait": True}
    with CustomConfig(entry_point="tests.envs.sample_turns:Rates", **options).build(1) as env:  # type: ignore[arg-type]
        assert not env.spec.simultaneous
        step = env.reset(3)
        rows = [step.groups[name] for name in ("quick", "slow")]

        def shown(name: str) -> list[Any]:
            return [getattr(row, name)[0, 0].tolist() for row in rows]

        seen = []
        for t in range(1, 5):
            step = env.step({name: torch.zeros(1, 1, dtype=torch.int64) for name in ("quick", "slow")})
            assert shown("alive") == [True, True] and shown("reward") == [t, 10 * t] and not step.done.any()
            seen.append((shown("acting"), shown("observation")))
        assert [acting for acting, _ in seen] == [[True, False], [True, False], [True, True], [True, False]]
        assert [slow for _, (_, slow) in seen] == [
            [0, 3],
            [0, 3],
            [3, 3],
            [3, 3],
        ]  # a waiting one's is what it saw last
        step = env.step({name: torch.zeros(1, 1, dtype=torch.int64) for name in ("quick", "slow")})
        assert step.done.all() and shown("truncated") == [True, True] and shown("terminated") == [False, False]
        assert shown("reward") == [5, 50] and shown("final_observation") == [[5, 3], [3, 3]]
        assert shown("acting") == [True, True] and shown("observation") == [[0, 4], [0, 4]]


@pytest.mark.parametrize("leaves", [True, False])
def test_different_rates_keep_the_contract(leaves: bool) -> None:
    options = {"kwargs": {"leaves": leaves}, "workers": 0, "agents_wait": True}
    check_vector_env(lambda n_envs: pettingzoo_vector_env(Rates, n_envs, **options))


def test_an_agent_that_ended_does_not_return_because_it_is_still_observed() -> None:
    class StillObserved(Rates):
        def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
            _, rewards, _, _, _ = super().step(actions)
            terminations = {"quick": self.t == 5, "slow": self.t == 2}
            self.agents = [] if self.t == 5 else ["quick"] if self.t >= 2 else ["quick", "slow"]
            observations = {agent: np.zeros(2, np.float32) for agent in terminations}
            return observations, rewards, terminations, dict.fromkeys(terminations, False), {}

    with pettingzoo_vector_env(StillObserved, 1, workers=0, agents_wait=True) as env:
        slow, alive = env.reset(0).groups["slow"], []
        for _ in range(4):
            env.step({name: torch.zeros(1, 1, dtype=torch.int64) for name in ("quick", "slow")})
            alive.append(slow.alive.item())
        assert alive == [True, False, False, False]


def test_an_agent_whose_mask_allows_nothing_waits() -> None:
    with pettingzoo_vector_env(OnlyAtEvenTimes, 1, workers=0, agents_wait=True) as env:
        assert not env.spec.simultaneous
        rows = env.reset(0).groups["a"]
        for t in range(4):
            assert rows.acting.item() == (t % 2 == 0) and rows.alive.item() and rows.action_mask.all()  # type: ignore[union-attr]
            env.step({"a": torch.zeros(1, 1, dtype=torch.int64)})
            assert rows.reward.item() == (10, 1)[t % 2]


def test_only_those_who_act_are_asked() -> None:
    made = Rates(leaves=True)
    with pettingzoo_vector_env(lambda: made, 1, workers=0, agents_wait=True) as env:
        env.reset(0)
        received = []
        for _ in range(5):
            env.step({name: torch.ones(1, 1, dtype=torch.int64) for name in ("quick", "slow")})
            received.append(sorted(made.received))
    assert received == [["quick", "slow"], ["quick"], ["quick"], ["quick", "slow"], ["quick"]]


def test_what_cannot_be_stepped_by_turns_says_why() -> None:
    with pytest.raises(EnvError, match=r"agent 'r_0' must act.*allows no choice"):
        pettingzoo_vector_env(Stuck, 1, workers=0, kwargs={"mask": "observation"}).reset(0)
    with pettingzoo_vector_env(Undead, 1, workers=0) as env:
        env.reset(0)
        with pytest.raises(EnvError, match="'r_1' is dead, but the environment keeps selecting it"):
            for _ in range(4):
                env.step({"r": torch.zeros(1, 3, dtype=torch.int64)})
    with pytest.raises(ConfigError, match="turn_based=True needs a constructor of PettingZoo's own"):
        CustomConfig(entry_point=RELAY, turn_based=True, workers=0).build(1)
    with pytest.raises(EnvError, match=r"no observation.*agents_wait"):
        with pettingzoo_vector_env(Rates, 1, workers=0) as env:
            env.reset(0)
            env.step({name: torch.zeros(1, 1, dtype=torch.int64) for name in ("quick", "slow")})


def test_an_option_steps_by_turns_what_could_be_stepped_at_once() -> None:
    options = {"workers": 0, "kwargs": {"max_cycles": 3}}
    kind = ENVIRONMENTS.get("pettingzoo/simple_spread")
    check_vector_env(lambda n_envs: kind(**options, turn_based=True).build(n_envs))
    with kind(**options).build(2) as at_once, kind(**options, turn_based=True).build(2) as by_turns:
        assert at_once.spec.simultaneous and not by_turns.spec.simultaneous
        assert at_once.spec.groups == by_turns.spec.groups
        one, other = at_once.reset(3).groups["agent"], by_turns.reset(3).groups["agent"]
        generator = torch.Generator().manual_seed(0)
        for _ in range(2):
            action = {"agent": torch.randint(5, (2, 3), generator=generator)}
            at_once.step(action)
            for _ in range(3):
                by_turns.step(action)
            torch.testing.assert_close(one.observation, other.observation)
            torch.testing.assert_close(one.reward, other.reward)
