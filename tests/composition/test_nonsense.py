"""What no experiment can mean: each override gets a ConfigError of a readable length, at once."""

from __future__ import annotations

import json
from pathlib import Path

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
        *("keep_checkpoints=1e12", "env.num_agent_neighbors=1e9", "env.num_landmark_neighbors=2147483648"),
        *("model.hidden=[" + "8," * 20_000 + "8]", "hydra.run.dir=x", "++hydra.x=1", "=3", "seed=glob(*)"),
        *("model.hidden.a=3", "model.hidden.a.b=3", "model.hidden.9=3", "schedule.agent.lr=2"),
        "schedule=['٣ algorithm.lr=1e-3']",
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
        ("loggers={}", "^cannot compose .*: Cannot merge a mapping with a list$"),
    ],
)
def test_the_bounds_are_the_options_own(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose("env=mpe/simple_spread", override)


@pytest.mark.parametrize("value", ["0", "null", "x", "[1]", "${seed}"])
@pytest.mark.parametrize(
    ("option", "inner"),
    [
        *(("algorithms", "agent.lr=1e-3"), ("models", "agent.hidden=[8]"), ("critics", "agent_0.hidden=[8]")),
        *(("groups", "a=[walker_0]"), ("env.kwargs", "n_walkers=2"), ("env.kwargs", "a.b=2"), ("env.groups", "a=[x]")),
        *(
            ("league.players", "main={method:pfsp}"),
            ("evolution.ranges", "lr=[1e-4,1e-3]"),
            ("evolution.factors", "lr=1"),
        ),
    ],
)
def test_an_option_that_takes_a_mapping_gets_none(option: str, inner: str, value: str) -> None:
    part = {"league": ["league=alphastar"], "evolution": ["evolution=pbt"]}.get(option.partition(".")[0], [])
    for words in ([f"{option}={value}"], [f"{option}={value}", f"{option}.{inner}"]):
        with pytest.raises(ConfigError, match=rf"^{option} (must be a mapping|takes \w+s by group, such as .*); got "):
            Experiment.compose("env=pettingzoo/multiwalker", *part, *words)


@pytest.mark.parametrize("value", ["1.5", "true", "''", "[]"])
def test_algorithms_of_all_groups_are_a_mapping(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^algorithms takes algorithms by group, such as algorithms.agent=<name>; got "
    ):
        Experiment.compose("env=mpe/simple_tag", f"algorithms={value}", "algorithms.agent.gamma=0.9")


def test_a_value_is_no_mapping_although_other_options_are_set_in_it(tmp_path: Path) -> None:
    for name, text in {
        "experiment/named.yaml": "defaults: [{env: pettingzoo/multiwalker}, {algorithms: mappo}]\n",
        "experiment/zero.yaml": "defaults: [{env: pettingzoo/multiwalker}]\nalgorithms: 0\n",
        "env/zero.yaml": "defaults: [pettingzoo/multiwalker]\n\nkwargs: 0\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=r"env/zero.yaml, line 3: env.kwargs must be a mapping; got 0"):
        Experiment.compose("env=zero", "env.kwargs.n_walkers=2", config_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"named.yaml: no part 'algorithms'.*algorithms.<group>"):
        Experiment.compose("experiment=named", config_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"zero.yaml, line 2: algorithms takes algorithms by group, .*; got 0"):
        Experiment.compose("experiment=zero", "algorithms.agent.lr=1e-3", config_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"^env.kwargs.a must be a mapping; got 0"):
        Experiment.compose("env=pettingzoo/multiwalker", "env.kwargs.a=0", "env.kwargs.a.b=1")


@pytest.mark.parametrize("value", ["'{0}{0}'", "[{0},{0}]", "[{0},'${{oc.select:seed}}']"])
def test_interpolations_that_expand_without_end(value: str) -> None:
    chain = [f"env.kwargs.a{k}=" + value.format(f"${{env.kwargs.a{k - 1}}}") for k in range(1, 40)]
    with pytest.raises(
        ConfigError, match=r"^interpolations \(\${...}\) may stand for at most 2,000 values in all; \d+ of "
    ):
        Experiment.compose("env=pettingzoo/multiwalker", "env.kwargs.a0=[1,1]", *chain)
    many = "env.kwargs.x=[" + ",".join(["${env.kwargs.a0}"] * 1000) + "]"
    with pytest.raises(ConfigError, match=r"0 of them refer to other .* the rest stand for 3,000 values$"):
        Experiment.compose("env=pettingzoo/multiwalker", "env.kwargs.a0=[1,1]", many)


def test_interpolations_of_interpolations_within_bounds() -> None:
    words = ("env.kwargs.a=${env.kwargs.b}", "env.kwargs.b=[${seed},${frames}]", "seed=3", "frames=1000")
    assert Experiment.compose("env=pettingzoo/multiwalker", *words).to_json()["env"]["kwargs"]["a"] == [3, 1000]


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
