"""A user's own classes by import path: found in the current folder, composed, written, and read in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marlnb.config import ENVIRONMENTS
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.plugins.import_paths import file_of, is_import_path, load_object
from marlnb.training.runs.run import Run

MODULE = '''
from dataclasses import dataclass

from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import marlnb as mnb
from marlnb.envs.custom import pettingzoo_vector_env


class Line(ParallelEnv):
    """Two agents see the step; either earns `prize`."""

    metadata = {"name": "line"}
    possible_agents = ["a_0", "a_1"]

    def __init__(self, length: int, prize: float, nested: object = None):
        self.length, self.prize, self.nested = length, prize, nested

    def observation_space(self, agent):
        return Box(0, 100, (1,))

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t = self.possible_agents[:], 0
        return {agent: [0.0] for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        over, living = self.t >= self.length, self.agents
        if over:
            self.agents = []
        same = lambda value: {agent: value for agent in living}
        return same([float(self.t)]), same(self.prize), same(over), same(False), same({})


@dataclass
class Inner:
    x: int = 1


@dataclass
class LineArguments:
    length: int = mnb.option(4, help="steps", ge=1, le=9)
    prize: float = 1.0
    nested: Inner = Inner


@dataclass(frozen=True)
class LineConfig(mnb.EnvConfig):
    """A line of one's own."""

    length: int = mnb.option(4, help="steps", ge=1)

    def build(self, n_envs, device="cpu"):
        return pettingzoo_vector_env(Line, n_envs, kwargs={"length": self.length, "prize": 0.5}, workers=0)


class Undecorated(mnb.EnvConfig):
    length: int = 3

    def build(self, n_envs, device="cpu"): ...


class Abstract(mnb.EnvConfig):
    pass


def function():
    return Line(3, 1.0)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own in the current folder, which is not on sys.path."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        MODULE.replace("nested: Inner = Inner", "nested: Inner = Inner()").replace(
            "@dataclass\nclass Inner", "@dataclass(frozen=True)\nclass Inner"
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


def test_import_paths() -> None:
    assert is_import_path("a.b:C.d") and not is_import_path("pettingzoo/custom") and not is_import_path("a b:c")
    assert load_object("marlnb.errors:ConfigError") is ConfigError
    with pytest.raises(ConfigError, match=r"no name 'ConfigEror' in marlnb.errors; did you mean 'ConfigError'"):
        load_object("marlnb.errors:ConfigEror")
    with pytest.raises(
        ConfigError, match=r"cannot import 'no_such' for 'no_such:X': ModuleNotFoundError.*current folder"
    ):
        load_object("no_such:X")
    with pytest.raises(ConfigError, match=r'an import path has the form "module:name"; got \'nothing\''):
        load_object("nothing")


def test_a_config_by_import_path_there_and_back(module: str, tmp_path: Path) -> None:
    experiment = Experiment.compose(f"env={module}:LineConfig", "env.length=3", "algorithm=ippo")
    data = experiment.to_json()
    assert data["env"] == {"name": f"{module}:LineConfig", "length": 3}
    assert Experiment.from_json(json.loads(json.dumps(data))) == experiment
    with experiment.env.build(2) as env:
        env.reset(0)
        import torch

        rewards = [env.step({"a": torch.zeros(2, 2, dtype=torch.int64)}).groups["a"].reward.sum() for _ in range(3)]
        assert [float(reward) for reward in rewards] == [2.0, 2.0, 2.0]
    Run.create(tmp_path / "run", experiment)
    code = "import marlnb; run = marlnb.Run.open('run'); print(run.experiment.env); print(run.experiment.loaded().env)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"UnloadedEnv({module}:LineConfig, length=3)", "LineConfig(length=3)"], (
        done.stderr
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env={m}:LineConfig", "env.lenght=3"], r"'env.lenght'.*; did you mean 'env.length'"),
        (["env={m}:LineConfig", "env.length=0"], r"length must be at least 1"),
        (["env={m}:LineConfg"], r"'LineConfg'.*; did you mean 'LineConfig'"),
        (["env={m}:Line"], r"is not a valid environment: .*env=pettingzoo/custom env.entry_point={m}:Line"),
        (["env={m}:Undecorated"], r"needs the decorator @dataclass\(frozen=True\)"),
        (["env={m}:Abstract"], r"is not a valid environment"),
        (["env={m}:LineConfig", "algorithm={m}:LineConfig"], r"is not a valid algorithm"),
    ],
)
def test_what_is_wrong_with_a_path(module: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("{m}", module)):
        Experiment.compose(*(text.replace("{m}", module) for text in overrides))


def test_a_variant_of_a_config_by_import_path(module: str, tmp_path: Path) -> None:
    (tmp_path / "conf" / "env").mkdir(parents=True)
    (tmp_path / "conf" / "env" / "long.yaml").write_text(f'defaults: ["{module}:LineConfig"]\nlength: 8\n')
    (tmp_path / "conf" / "env" / "named.yaml").write_text(f'name: "{module}:LineConfig"\nlength: 7\n')
    assert Experiment.compose("env=long").to_json()["env"] == {"name": f"{module}:LineConfig", "length": 8}
    assert Experiment.compose("env=named").to_json()["env"] == {"name": f"{module}:LineConfig", "length": 7}


def test_arguments_are_checked_by_a_dataclass(module: str) -> None:
    chosen = ["env=pettingzoo/custom", f"env.entry_point={module}:Line", f"env.arguments={module}:LineArguments"]
    experiment = Experiment.compose(*chosen, "env.kwargs.length=2", "env.workers=0")
    assert experiment.env.kwargs == {"length": 2, "prize": 1.0, "nested": {"x": 1}}  # type: ignore[attr-defined]
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment
    made = experiment.env._constructor_kwargs()  # type: ignore[attr-defined]
    assert type(made["nested"]).__name__ == "Inner"
    with experiment.env.build(1) as env:
        assert env.spec.agents == ("a_0", "a_1")
    for override, message in {
        "env.kwargs.lenght=2": r"env: no option 'kwargs.lenght'; did you mean 'kwargs.length'",
        "env.kwargs.length=10": r"env: kwargs.length must be at most 9; got 10",
        "env.kwargs.prize=big": r"env: kwargs.prize must be a number; got 'big'",
        "env.kwargs.nested.y=1": r"kwargs.nested.y'; did you mean|no option 'kwargs.nested.y'",
        f"env.arguments={module}:Line": r"arguments must name a dataclass",
    }.items():
        with pytest.raises(ConfigError, match=message):
            Experiment.compose(*chosen, override)


def test_arguments_of_a_registered_function(module: str) -> None:
    from marlnb.envs.custom import environment

    line, arguments = load_object(f"{module}:Line"), load_object(f"{module}:LineArguments")
    environment(f"{module}/line", arguments=arguments)(lambda length, prize, nested: line(length, prize))
    kind = ENVIRONMENTS.get(f"{module}/line")
    assert kind(kwargs={"prize": 3}).kwargs["prize"] == 3.0  # type: ignore[call-arg, attr-defined]
    with pytest.raises(ConfigError, match=r"env: no option 'kwargs.prise'; did you mean 'kwargs.prize'"):
        Experiment.compose(f"env={module}/line", "env.kwargs.prise=1")
    with pytest.raises(ConfigError, match="arguments must be a dataclass"):
        environment(f"{module}/other", arguments=line)


def test_the_file_of_a_module_below_folders_without_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own finder raises KeyError there, as long as the outer folder is not imported."""
    module = tmp_path / "outermost" / "inner" / "innermost" / "env.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert file_of("outermost.inner.innermost.env") == str(module)
    assert file_of("outermost.inner.other") is None and file_of("outermost.time") is None
    assert "outermost" not in sys.modules
