"""Words from an experiment: composed again they give the same experiment, whatever its options hold."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marlnb.composition.overrides import as_code, as_command, overrides_of
from marlnb.config import ALGORITHMS, MODELS
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment

ASKED = [
    ("env=mpe/simple_spread",),
    ("env=mpe/simple_spread", "algorithm=mappo", "algorithm.lr=1e-3", "frames=3_000_000", "seed=7"),
    ("env=mpe/simple_tag", "env.num_good=2", "algorithms.adversary=iql", "models.agent=gru", "models.agent.hidden=[8]"),
    (
        "env=mpe/simple_tag",
        "model=gru",
        "critic=mlp",
        "critic.hidden=[32,32]",
        "models.agent_0=mlp",
        "algorithm.lr=1e-2",
    ),
    ("env=mpe/simple_tag", "algorithm=mappo", "algorithm.gamma=0.9", "algorithms.agent=mappo"),
    ("env=pettingzoo/multiwalker", "loggers=[tensorboard]", "target_return=-8.25", "device=cuda:1"),
    ("env=pettingzoo/custom", "env.entry_point=my.module:make", "env.kwargs={a:1,b:[x,'y z'],c:null,d:true}"),
    ("env=mpe/simple_tag", "groups={all:[adversary_0,agent_0]}"),
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda words: " ".join(words[:2]))
def test_the_words_compose_the_same_experiment(asked: tuple[str, ...]) -> None:
    experiment = Experiment.compose(*asked)
    assert Experiment.compose(*overrides_of(experiment)) == experiment


def test_what_is_default_is_left_out() -> None:
    experiment = Experiment.compose("env=mpe/simple_spread", "frames=1_000_000", "algorithm.lr=0.5", "tuned=false")
    assert overrides_of(experiment) == ["env=mpe/simple_spread", "algorithm.lr=0.5", "tuned=false"]
    started = Experiment.compose("env=mpe/simple_spread")
    assert overrides_of(started) == ["env=mpe/simple_spread"]
    assert overrides_of(replace(started, seed=3)) == ["env=mpe/simple_spread", "seed=3"]


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_every_algorithm_is_written(name: str) -> None:
    try:
        experiment = Experiment.compose("env=mpe/simple_spread", f"algorithm={name}")
    except ConfigError:  # a part that needs options of its own
        experiment = Experiment.compose("env=mpe/simple_spread", f"algorithm={name}", f"algorithm.{_NEEDS[name]}")
    assert Experiment.compose(*overrides_of(experiment)) == experiment


_NEEDS = {"frozen": "run=runs/x", "scripted": "policy=my.module:act"}


@pytest.mark.parametrize("name", MODELS.names())
def test_every_model_is_written(name: str) -> None:
    experiment = Experiment.compose("env=mpe/simple_spread", f"model={name}")
    assert Experiment.compose(*overrides_of(experiment)) == experiment


HOSTILE = [
    *("a b", "a,b", "it's", 'say "hi"', "$(rm -rf /)", "`x`", "${oc.env:HOME}", "{a: 1}", "[1]", "null", "true", "1e3"),
    *("", " ", "a\\b", "ends\\", "\\'", "x=y", "né 東", "#no", "-5", "nan", "inf", "a: b", "1_000", "(", "~", "a\tb"),
    *("\\${a}", "${", "$", "a.b/c:d", "@x", "*"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_arrives(text: str) -> None:
    plain = Experiment.compose("env=pettingzoo/custom", "env.entry_point=a:b")
    env: Any = plain.env
    experiment = replace(plain, env=replace(env, kwargs={"key": text, "list": [text, 1]}))
    words = overrides_of(experiment)
    assert Experiment.compose(*words).to_json() == experiment.to_json()
    in_a_shell = shlex.split(as_command(experiment).replace("\\\n", ""))
    assert in_a_shell[2:] == words


@pytest.mark.parametrize("key", ["a b", "a:b", " a=b,c ", "(a)[b]{c}", "a\\b\\", "${y}", "1a", "a-b.c/d"])
def test_any_key_that_hydra_can_read_arrives(key: str) -> None:
    plain = Experiment.compose("env=pettingzoo/custom", "env.entry_point=my.module:make", "algorithm=ippo")
    experiment = replace(plain, env=replace(plain.env, kwargs={key: {key: 1}}))
    assert Experiment.compose(*overrides_of(experiment)) == experiment


def test_code_runs_and_makes_the_experiment() -> None:
    experiment = Experiment.compose(*ASKED[2])
    made: dict[str, object] = {}
    exec(as_code(experiment, "runs/it's").rpartition("\n")[0], made)
    assert made["experiment"] == experiment
    assert as_code(experiment, "runs/x").endswith("mnb.train(experiment, run='runs/x', resume=True)")
    assert as_command(experiment, "runs/a b").endswith("'run=runs/a b' --resume")


def test_code_and_command_stop_after_a_time(tmp_path: Path) -> None:
    experiment = Experiment.compose("env=mpe/simple", "algorithm=ippo", "n_envs=2", "frames=100_000_000")
    folder, made = str(tmp_path / "run"), dict[str, Any]()
    exec(as_code(experiment, folder, stop_after_s=1), made)
    assert made["run"].status()["state"] == "stopped" and made["run"].checkpoints
    words = shlex.split(as_command(experiment, folder, stop_after_s=90).replace("\\\n", ""))
    assert words[:4] == ["timeout", "90", "marlnb", "train"]
    assert Experiment.compose(*words[4:-2]) == experiment
