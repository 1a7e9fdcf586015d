"""`mnb.vector_env` builds environments from a name, a configuration, an Experiment, a function or a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import marlnb as mnb
from marlnb.config import ENVIRONMENTS
from marlnb.envs.external import ExternalConfig, ExternalGroup
from marlnb.errors import ConfigError, EnvBuildError, UnknownNameError
from tests.envs.labelled_envs import Rooms, Turns


@pytest.mark.parametrize(
    ("env", "n_envs", "options", "name", "agents"),
    [
        ("mpe/simple_spread", 2, {"N": 4}, "mpe/simple_spread", 4),
        ("tictactoe", None, {"workers": 0}, "pettingzoo/tictactoe", 2),
        (lambda: mnb.vector_env("mpe/simple_tag", 3, num_good=2), 3, {}, "mpe/simple_tag", 5),
    ],
    ids=["name", "name without pettingzoo/", "function of a VectorEnv"],
)
def test_names_and_functions(env: Any, n_envs: int | None, options: dict[str, Any], name: str, agents: int) -> None:
    with mnb.vector_env(env, n_envs, **options) as envs:
        assert (envs.spec.name, envs.n_envs, len(envs.spec.agents)) == (name, n_envs or 1, agents)


@pytest.mark.parametrize("name", ["mpe/simple_spread", "tictactoe", "tree/kuhn_poker"])
@pytest.mark.parametrize("n_envs", [2.5, "2", True])
def test_a_number_of_envs_is_whole(name: str, n_envs: Any) -> None:
    with pytest.raises(EnvBuildError, match=f"{name} needs a whole number of envs; got n_envs={n_envs!r}"):
        mnb.vector_env(name, n_envs)


def test_a_configuration_keeps_its_options() -> None:
    config = ENVIRONMENTS.get("mpe/simple_spread")(N=4)  # type: ignore[call-arg]
    with mnb.vector_env(config, 2, max_cycles=7) as envs:
        assert len(envs.spec.agents) == 4 and envs.spec.max_steps == 7


def test_groups_of_a_simulators_agents_describe_them() -> None:
    with mnb.vector_env("external/server", groups={"player": {"observation": [2], "actions": 3}}) as envs:
        (group,) = envs.spec.groups
        assert (group.agents, group.observation.shape, group.action.n) == (("player_0",), (2,), (3,))
    groups = {"a": ("player_1",), "b": ("player_0",)}
    config = ExternalConfig(groups={"player": ExternalGroup(agents=2, observation=(2,), actions=3)})
    with mnb.vector_env(config, groups=groups) as envs:
        assert envs.spec.group_names == ("a", "b")


def test_an_experiment_gives_its_environments_and_groups() -> None:
    groups = ("groups.pair=[agent_0,agent_1]", "groups.single=[agent_2]")
    experiment = mnb.Experiment.compose("env=mpe/simple_spread", "n_envs=5", *groups)
    with mnb.vector_env(experiment) as envs:
        assert envs.n_envs == 5 and envs.spec.group_names == ("pair", "single")
    with pytest.raises(EnvBuildError, match="n_envs=0"):
        mnb.vector_env(experiment, 0)
    with mnb.vector_env(experiment, 2, groups={"all": ("agent_2", "agent_1", "agent_0")}) as envs:
        assert envs.n_envs == 2 and envs.spec.agents == ("agent_2", "agent_1", "agent_0")


def test_pettingzoo_classes_and_functions_step() -> None:
    for constructor, agents in ((Rooms, 3), (Turns, 2), (lambda: Rooms(), 3)):
        with mnb.vector_env(constructor, 2, workers=0) as envs:
            envs.reset(seed=0)
            actions = {g.name: torch.zeros(2, g.n_agents, dtype=torch.int64) for g in envs.spec.groups}
            envs.step(actions)
            assert len(envs.spec.agents) == agents


def test_a_function_of_pettingzoo_environments_gets_the_arguments_that_it_has() -> None:
    calls: list[tuple[int, str]] = []

    def rooms(n_envs: int, device: str) -> Rooms:
        calls.append((n_envs, device))
        return Rooms()

    with mnb.vector_env(rooms, 2, workers=0) as envs:
        assert envs.n_envs == 2 and len(envs.spec.agents) == 3
    assert set(calls) == {(2, "cpu")}


@pytest.mark.parametrize("arguments", ["", "n_envs, device"])
def test_torchrl_functions_step(arguments: str) -> None:
    from torchrl.envs import EnvBase

    def batched(n_envs: int, device: str) -> EnvBase:
        return mnb.as_torchrl(mnb.vector_env("mpe/simple_spread", n_envs, device=device))

    # one environment has the batch size [1], which a function without `n_envs` may not have
    function: Callable[..., EnvBase] = batched if arguments else lambda n_envs: batched(n_envs, "cpu")
    with mnb.vector_env(function, 3, max_steps=4) as envs:
        step = envs.reset(seed=0)
        assert step.groups["agent"].observation.shape == (3, 3, 18) and envs.spec.max_steps == 4


@pytest.mark.parametrize(
    ("env", "options", "kind", "message"),
    [
        ("mpe/simple_spred", {}, UnknownNameError, "did you mean 'mpe/simple_spread'"),
        ("mpe/simple_spread", {"M": 2}, ConfigError, "no option 'M' of SimpleSpreadConfig"),
        ("external/server", {"groups": {"a": ["b"]}}, ConfigError, r"external/server.groups.a must be a mapping"),
        (Rooms, {"worker": 2}, ConfigError, "did you mean 'workers'"),
        (Rooms, {"kwargs": {"size": 2}}, EnvBuildError, "size"),
        (3, {}, ConfigError, "a function or class that returns an environment; got a int"),
        (lambda: mnb.vector_env("mpe/simple"), {"max_steps": 3}, ConfigError, "no option 'max_steps' of <lambda>"),
    ],
)
def test_errors_name_what_is_valid(env: Any, options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        mnb.vector_env(env, **options)
