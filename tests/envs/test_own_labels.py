"""Labels that a PettingZoo environment gives with its method `labels`: built, stepped, recorded and decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.envs.contract import check_vector_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import LabelSpec
from tests.envs.labelled_envs import Rooms, Turns, Wrong


def still(env: VectorEnv) -> dict[str, torch.Tensor]:
    return {group.name: torch.zeros(env.n_envs, group.n_agents, dtype=torch.int64) for group in env.spec.groups}


@pytest.mark.parametrize("workers", [0, 2])
def test_labels_are_those_of_the_step_before_the_action(workers: int) -> None:
    with mnb.vector_env(Rooms, 2, workers=workers) as env:
        assert env.spec.labels == (
            LabelSpec("goal", None, ("red", "blue")),
            LabelSpec("t"),
            LabelSpec("late", None, ("False", "True")),
            LabelSpec("room", "walker", ("hall", "attic")),
            LabelSpec("walker_number", "walker"),
            LabelSpec("judge_number", "judge"),
        )
        env.reset(seed=4)
        first = env.labels()
        assert first["goal"].tolist() == [0, 1] and first["t"].tolist() == [0.0, 0.0]
        assert first["walker_number"].tolist() == [[0.0, 10.0]] * 2 and first["judge_number"].tolist() == [[20.0]] * 2
        for _ in range(3):
            env.step(still(env))
        last = env.labels()
        assert last["late"].tolist() == [1, 1] and last["room"].tolist() == [[1, 0]] * 2
        assert last["walker_number"].tolist() == [[3.0, 0.0]] * 2  # walker_1 has left: zero
        assert first["t"].tolist() == [0.0, 0.0]  # a copy
        assert env.step(still(env)).done.all()
        assert env.labels()["t"].tolist() == [0.0, 0.0]  # of the next episode, whose observations are current


def test_labels_of_turns_and_of_new_groups() -> None:
    with mnb.vector_env(Turns, 1, workers=0) as env:
        env.reset(seed=0)
        env.step(still(env))
        assert env.labels()["n_turns"].tolist() == [1.0] and env.labels()["to_move"].tolist() == [[0, 1]]
    groups = {"one": ("walker_0",), "two": ("walker_1",), "judge": ("judge_0",)}
    with mnb.vector_env(Rooms, 1, workers=0, groups=groups) as env:
        env.reset(seed=0)
        assert env.labels()["two_number"].tolist() == [[10.0]] and env.labels()["one_room"].tolist() == [[0]]


@pytest.mark.parametrize("constructor", [Rooms, Turns])
def test_the_contract_holds(constructor: type) -> None:
    check_vector_env(lambda n_envs: mnb.vector_env(constructor, n_envs, workers=0))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no dict", "must return a dict"),
        ("a text", r"labels\(\)\['colour'\] is 'red'; a label is .* label_classes"),
        ("an unknown agent", "no agent 'walker_7'; did you mean"),
        ("no agent", r"labels\(\)\[\'near\'\] is a dict by agent without any agent"),
        ("two of one name", "two labels one name"),
    ],
)
def test_labels_that_are_not_valid_are_known_when_it_is_built(what: str, message: str) -> None:
    with pytest.raises(EnvBuildError, match=message):
        mnb.vector_env(Wrong, 1, workers=0, kwargs={"what": what})


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("another class", r"labels\(\)\['goal'\] is 'green'; expected one of \['red', 'blue'\]"),
        ("less later", "after the first reset it also had 't'"),
        ("an agent less", "lacks the living agent 'walker_1'"),
    ],
)
def test_labels_that_change_are_an_error_that_names_them(what: str, message: str, workers: int) -> None:
    with mnb.vector_env(Wrong, 1, workers=workers, kwargs={"what": what}) as env:
        env.reset(seed=0)
        env.step(still(env))
        with pytest.raises(EnvError, match=message):
            env.labels()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_recording_holds_them_and_names_features_by_keys(workers: int, tmp_path: Path) -> None:
    experiment = mnb.Experiment.compose(
        *("env=pettingzoo/custom", "env.entry_point=tests.envs.labelled_envs:Rooms", f"env.workers={workers}"),
        *("algorithm=ippo", "n_envs=2", "rollout_steps=4", "frames=8", "model.hidden=[8]"),
    )
    run = mnb.train(experiment, tmp_path / "run", progress=False)
    with mnb.record(run, episodes=6, progress=False) as recording:
        t = recording.rows["t"].to_numpy()
        np.testing.assert_array_equal(recording.label("t").to_numpy(), t)
        assert recording.classes("room") == ["hall", "attic"] and recording.classes("goal") == ["red", "blue"]
        np.testing.assert_array_equal(recording.label("room").sel(agent="walker_0").to_numpy(), t % 2)
        seeds = recording.episodes["seed"].to_numpy()[recording.rows["episode"]]
        np.testing.assert_array_equal(recording.label("goal").to_numpy(), seeds % 2)
        # numbers are computed from Rooms: the names must be in the order of the flattened dictionary
        observed = recording.steps("walker", "observation")
        assert recording.feature_names("walker") == ["me_door_0", "me_door_1", "me_speed", "position_0", "position_1"]
        first = observed.sel(agent="walker_0")
        np.testing.assert_array_equal(first.sel(feature="position_0").to_numpy(), t)
        np.testing.assert_array_equal(first.sel(feature="me_speed").to_numpy(), 0.5 * t)
        np.testing.assert_array_equal(first.sel(feature="me_door_1").to_numpy(), seeds % 2)
        attribution = mnb.attribute(recording, group="walker", to="action", method="gradient", progress=False)
        assert list(attribution.feature_names) == ["me_door_0", "me_door_1", "me_speed", "position_0", "position_1"]
