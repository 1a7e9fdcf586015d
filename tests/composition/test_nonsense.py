"""What no experiment can mean: each override gets a ConfigError of a readable length, at once."""

from __future__ import annotations

import json

import pytest

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment

DIGITS = "9" * 5000
NESTED = "[" * 400 + "1" + "]" * 400
MAX_MESSAGE = 4_500  # names of environments are listed


@pytest.mark.parametrize(
    "override",
    [
        *("algorithms=-5", "models=3", "critics=[1]", "groups=-5", "algorithms={agent:3}", "algorithm=null"),
        *(f"seed={DIGITS}", f"seed=-{DIGITS}", f"algorithm.lr={DIGITS}", "seed=" + "9" * 400, "frames=1e30"),
        *("frames=1e400", "algorithm.lr=1e400", "env.N=1e39", f"model.hidden={NESTED}", f"env.kwargs={NESTED}"),
        *("x=" + "{a:" * 300 + "1" + "}" * 300, "k" * 3000 + "=1", "env." + "k" * 3000 + "=1", "env=" + "k" * 3000),
        *("algorithm." + "k." * 1500 + "k=1", "model=" + "k" * 3000, "seed='" + "a" * 100_000 + "'"),
        *("critic.hidden={a:{b:{c:{d:1}}}}", "models.agent.hidden={a:{b:1}}", "critic={a:1}"),
        *(
            "n_envs=1e12",
            "threads=1e30",
            "rollout_steps=1e12",
            "env.N=1e6",
            "model.hidden=[1e9]",
            "max_minutes=Infinity",
        ),
        *("algorithm.lr=Infinity", "algorithm.lr=inf", "algorithm.lr='Infinity'", "target_return=-Infinity"),
        *("algorithm.epochs=1e30", "algorithm.sequence_length=1e9", "env.max_cycles=1e30", "evaluation_episodes=1e30"),
        "keep_checkpoints=1e12",
    ],
    ids=lambda override: override[:40],
)
def test_an_override_that_makes_no_sense(override: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Experiment.compose("env=mpe/simple_spread", override)
    assert len(str(raised.value)) < MAX_MESSAGE


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("threads=1e30", r"^threads must be at most 1024; got 1e\+30$"),
        ("env.N=1e39", r"^env.N must be at most 256; got 1e\+39$"),
        ("frames=1e30", "^frames must be between -9223372036854775807 and 9223372036854775807; got 10{9}"),
        ("critic.hidden={a:{b:1}}", "critic.hidden.*: Cannot merge a mapping with a list$"),
    ],
)
def test_the_bounds_are_the_options_own(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose("env=mpe/simple_spread", override)


def test_an_iteration_that_no_memory_holds() -> None:
    with pytest.raises(ConfigError, match=r"n_envs=100000 × rollout_steps=100000 frames, 10,000,000,000; at most"):
        Experiment.compose("env=mpe/simple_spread", "n_envs=100000", "rollout_steps=100000", "frames=1e12")


def test_a_file_that_makes_no_sense() -> None:
    data = Experiment.compose("env=pettingzoo/multiwalker").to_json()
    nested: object = 1
    for _ in range(900):
        nested = {"a": nested}
    for kwargs in (nested, {"n": 10**400}, {"n": float("inf")}):
        with pytest.raises(ConfigError):
            Experiment.from_json({**data, "env": {**data["env"], "kwargs": kwargs}})
    with pytest.raises(ConfigError, match=r"a very large int|9999"):
        Experiment.from_json({**data, "seed": int("9" * 4000) ** 2})
    assert Experiment.from_json(json.loads(json.dumps(data))).to_json() == data
