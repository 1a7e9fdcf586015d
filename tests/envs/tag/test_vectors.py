"""Both games of tag against WarpDrive's Python environments (vectors/README.md), all steps of a case at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.envs.tag.config import TagContinuousConfig, TagGridWorldConfig
from marlnb.envs.tag.continuous import TagContinuous
from marlnb.envs.tag.gridworld import TagGridWorld
from marlnb.envs.tensor.philox import Draws

VECTORS = Path(__file__).with_name("vectors")
TOLERANCE = {"atol": 1e-6, "rtol": 0.0}
NO_DRAW = Draws(torch.zeros(1, dtype=torch.int64))


def load(name: str) -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {}
    with np.load(VECTORS / f"{name}.npz") as arrays:
        for key in arrays.files:
            case, _, field = key.partition("/")
            cases.setdefault(case, {})[field] = arrays[key]
    for case in cases.values():
        case["config"] = json.loads(str(case["config"]))
    return cases


CONTINUOUS, GRIDWORLD = load("continuous"), load("gridworld")


def tensors(case: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in case.items() if isinstance(value, np.ndarray)}


def continuous_rules(case: dict[str, Any]) -> TagContinuous:
    given = {name: value for name, value in case["config"].items() if value is not None}
    given["start_seed"] = given.pop("seed")
    del given["env_backend"]  # cpu or a kernel
    return TagContinuous(TagContinuousConfig(**given), is_tagger=(case["agent_type"] == 1).tolist())


def state_at(v: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """Every row as an env of its own."""
    state = {"x": v["x"], "y": v["y"], "speed": v["speed"], "direction": v["dir"], "acceleration": v["acc"]}
    before = torch.cat((v["still"][:1], v["still"][:-1]))
    state |= {"in_game": v["still"] == 1, "observed_in_game": before == 1, "time": torch.arange(len(v["x"]))}
    return {name: value[rows] for name, value in state.items()}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_steps(name: str) -> None:
    case = CONTINUOUS[name]
    rules, v = continuous_rules(case), tensors(case)
    before, expected = state_at(v, slice(-1)), state_at(v, slice(1, None))
    action = v["actions"].long()
    state, reward = rules.step(
        before, {"tagger": action[:, rules.taggers], "runner": action[:, rules.runners]}, NO_DRAW
    )
    for field in ("x", "y", "speed", "direction", "acceleration"):
        torch.testing.assert_close(state[field], expected[field], **TOLERANCE)
    for field in ("in_game", "observed_in_game"):
        assert torch.equal(state[field], expected[field])
    for group, ids in (("tagger", rules.taggers), ("runner", rules.runners)):
        torch.testing.assert_close(reward[group].double(), v["reward"][:, ids], **TOLERANCE)
    assert torch.equal(rules.terminated({**state, "time": expected["time"]}), v["done"])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_observations(name: str) -> None:
    case = CONTINUOUS[name]
    rules, v = continuous_rules(case), tensors(case)
    torch.testing.assert_close(rules.features(state_at(v, slice(None))), v["obs"], **TOLERANCE)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_episode_from_its_start(name: str) -> None:
    """Errors of float32 may add up over 100 steps, but no flag differs."""
    case = CONTINUOUS[name]
    rules, v = continuous_rules(case), tensors(case)
    state = state_at(v, slice(1))
    for t, action in enumerate(v["actions"].long()):
        actions = {"tagger": action[None, rules.taggers], "runner": action[None, rules.runners]}
        state = {**rules.step(state, actions, NO_DRAW)[0], "time": torch.tensor([t + 1])}
        assert torch.equal(state["in_game"][0], v["still"][t + 1] == 1)
        torch.testing.assert_close(state["x"][0], v["x"][t + 1], atol=1e-5, rtol=0)


def test_levels_of_actions_are_warpdrives() -> None:
    for case in CONTINUOUS.values():
        rules = continuous_rules(case)
        assert rules._accelerations.tolist() == case["acceleration_actions"].tolist()
        assert rules._turns.tolist() == case["turn_actions"].tolist()


@pytest.mark.parametrize("name", GRIDWORLD)
def test_gridworld(name: str) -> None:
    case = GRIDWORLD[name]
    v = tensors(case)
    start = {f"starting_location_{axis}": tuple(v[axis][0].tolist()) for axis in "xy"}
    given = {} if name in ("defaults", "yaml_config") else start
    rules = TagGridWorld(TagGridWorldConfig(**case["config"], **given))
    states = {"x": v["x"].long(), "y": v["y"].long(), "time": torch.arange(len(v["x"]))}
    first = rules.start(NO_DRAW)
    assert torch.equal(first["x"][0], states["x"][0]) and torch.equal(first["y"][0], states["y"][0])
    action = v["actions"].long()
    before = {name: value[:-1] for name, value in states.items()}
    state, reward = rules.step(before, {"tagger": action[:, :-1], "runner": action[:, -1:]}, NO_DRAW)
    assert torch.equal(state["x"], states["x"][1:]) and torch.equal(state["y"], states["y"][1:])
    got = torch.cat((reward["tagger"], reward["runner"]), 1)
    torch.testing.assert_close(got.double(), v["reward"], **TOLERANCE)
    assert torch.equal(rules.terminated({**state, "time": states["time"][1:]}), v["done"])
    seen = rules.observe(states)
    torch.testing.assert_close(torch.cat((seen["tagger"], seen["runner"]), 1).double(), v["obs"], **TOLERANCE)
