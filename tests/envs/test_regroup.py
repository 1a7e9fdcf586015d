"""Regrouping changes the layout of the same numbers: compared with the environment's own groups, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import marlnb
from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.mpe.simple_tag import SimpleTagConfig
from marlnb.envs.regroup import Regrouped, build_env
from marlnb.envs.steps import random_actions
from marlnb.envs.vector import Step
from marlnb.errors import ConfigError, EnvError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer

TAG = SimpleTagConfig(num_good=2, state=True)
SPLIT = {"left": ("adversary_0", "adversary_2"), "right": ("adversary_1",), "prey": ("agent_0", "agent_1")}
FIELDS = ("observation", "alive", "acting", "reward", "terminated", "truncated", "final_observation")


def by_agent(step: Step, groups: dict[str, tuple[str, ...]], field: str) -> dict[str, Tensor]:
    return {
        agent: getattr(step.groups[name], field)[:, row].clone()
        for name, agents in groups.items()
        for row, agent in enumerate(agents)
    }


@pytest.mark.parametrize(
    ("name", "options", "groups"),
    [
        ("mpe/simple_tag", {"num_good": 2, "state": True}, SPLIT),
        ("mpe/simple_spread", {}, {"b": ("agent_2", "agent_0"), "a": ("agent_1",)}),
        ("probe/dying", {}, {"mortal": ("agent_0",), "lasting": ("agent_1",)}),
        ("probe/echo", {}, {"second": ("player_1",), "first": ("player_0",)}),
        ("pettingzoo/rps", {"workers": 0}, {"one": ("player_1",), "zero": ("player_0",)}),
    ],
)
def test_a_regrouped_environment_keeps_the_contract(name: str, options: dict[str, Any], groups: Any) -> None:
    check_vector_env(lambda n_envs: Regrouped(ENVIRONMENTS.get(name)(**options).build(n_envs), groups), episodes=8)


def test_every_agent_sees_and_earns_what_it_did() -> None:
    own = {"adversary": ("adversary_0", "adversary_1", "adversary_2"), "agent": ("agent_0", "agent_1")}
    plain, grouped = TAG.build(3), Regrouped(TAG.build(3), SPLIT)
    generator = torch.Generator().manual_seed(0)
    left, right = plain.reset(7), grouped.reset(7)
    for _ in range(60):
        for field in FIELDS:
            expected, actual = by_agent(left, own, field), by_agent(right, SPLIT, field)
            assert all(torch.equal(actual[agent], value) for agent, value in expected.items()), field
        assert torch.equal(left.done, right.done) and torch.equal(left.episode_seed, right.episode_seed)
        assert left.state is not None and right.state is not None and torch.equal(left.state, right.state)
        actions = random_actions(grouped, right, generator)
        taken = {agent: actions[name][:, row] for name, agents in SPLIT.items() for row, agent in enumerate(agents)}
        left = plain.step({name: torch.stack([taken[agent] for agent in agents], 1) for name, agents in own.items()})
        right = grouped.step(actions)


def test_labels_follow_their_agents() -> None:
    plain, grouped = TAG.build(4), Regrouped(TAG.build(4), SPLIT)
    plain.reset(1), grouped.reset(1)
    theirs, ours = plain.labels(), grouped.labels()
    specs = {label.name: label for label in grouped.spec.labels}
    assert set(specs) == set(ours) and specs["agent_caught"].group == "prey"
    assert torch.equal(ours["agent_caught"], theirs["agent_caught"])
    assert specs["adversary_touches_adversary_2"].classes == ("apart", "touching")
    for row in range(3):
        name = f"adversary_prey_distance_adversary_{row}"
        assert specs[name].group is None and torch.equal(ours[name], theirs["adversary_prey_distance"][:, row])


def test_features_of_different_names_lose_them() -> None:
    names = [group.observation.names for group in ENVIRONMENTS.get("probe/dying")().build(1).spec.groups]
    assert names[0]
    one = SimpleTagConfig(num_adversaries=2, num_good=2, num_obstacles=0)
    apart = Regrouped(one.build(2), {"a": ("agent_0",), "b": ("adversary_0", "adversary_1"), "c": ("agent_1",)})
    assert apart.spec.group("a").observation.names == one.build(1).spec.group("agent").observation.names


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"all": ("adversary_0", "adversary_1", "adversary_2", "agent_0", "agent_1")}, "has observations of shape"),
        ({"a": ("adversary_0",)}, r"groups must contain each of .* exactly once; wrong: \['adversary_1'"),
        ({**SPLIT, "more": ("wolf",)}, r"wrong: \['wolf'\]"),
        ({**SPLIT, "right": ("adversary_1", "adversary_0")}, r"wrong: \['adversary_0'\]"),
        ({**SPLIT, "none": ()}, "group 'none' has no agents"),
    ],
)
def test_invalid_groups(groups: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Regrouped(TAG.build(1), groups)


def test_different_actions_cannot_be_one_group() -> None:
    speakers = ENVIRONMENTS.get("mpe/simple_speaker_listener")().build(1)
    with pytest.raises(
        ConfigError, match=r"'all' cannot contain 'speaker_0' and 'listener_0': .* observations of shape"
    ):
        Regrouped(speakers, {"all": ("speaker_0", "listener_0")})


def test_actions_of_other_shapes_are_refused() -> None:
    env = Regrouped(TAG.build(2), SPLIT)
    step = env.reset(0)
    with pytest.raises(EnvError, match=r"needs int64 actions \[2, 2\] of the group 'left'; got \{\}"):
        env.step({})
    actions = random_actions(env, step, torch.Generator().manual_seed(0))
    floats = {name: action.float() for name, action in actions.items()}  # 1.7 would be played as 1
    with pytest.raises(EnvError, match=r"needs int64 actions .* of the group 'left'; got .*torch.float32"):
        env.step(floats)


def test_without_groups_nothing_is_wrapped() -> None:
    experiment = Experiment.compose("env=mpe/simple_tag")
    assert not isinstance(build_env(experiment, 1), Regrouped)


def test_an_experiment_trains_resumes_evaluates_and_records_its_groups(tmp_path: Path) -> None:
    experiment = Experiment.compose(
        *("env=mpe/simple_tag", "algorithm=ippo", "algorithm.epochs=1", "n_envs=4", "rollout_steps=8", "frames=64"),
        *("groups.pack=[adversary_0,adversary_1]", "groups.lone=[adversary_2]", "groups.prey=[agent_0]"),
        *("algorithms.prey=random", "env.max_cycles=8", "evaluate_every=1", "evaluation_episodes=2"),
    )
    assert Experiment.from_json(experiment.to_json()) == experiment
    run = train(experiment, tmp_path / "r", progress=False)
    assert run.spec.group_names == ("pack", "lone", "prey") and run.spec.group("pack").n_agents == 2
    resume(run, frames=96, progress=False)
    assert set(marlnb.evaluate(run, episodes=3).return_mean) == {"pack", "lone", "prey"}
    with marlnb.record(run, episodes=2, progress=False) as recording:
        assert recording.steps("pack", "observation").shape == (16, 2, run.spec.group("pack").observation.size)
    with Trainer(experiment, Run.create(tmp_path / "again", experiment)) as trainer:
        next(trainer)


def test_one_policy_for_two_groups(tmp_path: Path) -> None:
    """simple_push's two agents differ in what they see; rock, paper, scissors' do not."""
    experiment = Experiment.compose(
        *("env=pettingzoo/rps", "env.workers=0", "env.groups.one=[player_0]", "env.groups.two=[player_1]"),
        *("groups.both=[player_1,player_0]", "algorithm=ippo", "n_envs=2", "rollout_steps=8", "frames=16"),
    )
    run = train(experiment, tmp_path / "r", progress=False)
    assert run.spec.group("both").agents == ("player_1", "player_0")
