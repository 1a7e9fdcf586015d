"""One file, one decorator: the user's own environment is listed, composed, built and checked as any other."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.envs.contract import check_vector_env
from marlnb.envs.custom import environment, pettingzoo_vector_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from tests.envs.registered_env import scripted
from tests.envs.sample_envs import Scripted


def test_it_is_listed_composed_and_built() -> None:
    assert "test/scripted" in ENVIRONMENTS.names()
    experiment = Experiment.compose("env=test/scripted", "env.kwargs.keeps_dead=true", "env.workers=0")
    assert experiment.env.kwargs == {"keeps_dead": True}  # type: ignore[attr-defined]
    assert Experiment.from_json(experiment.to_json()) == experiment
    with experiment.env.build(2) as env:
        assert env.spec.name == "test/scripted"
        assert env.reset(0).groups["a"].observation[0, 1].tolist() == [0, 2, 0]


@pytest.mark.parametrize("workers", [0, 2])
def test_it_keeps_the_contract(workers: int) -> None:
    kind = ENVIRONMENTS.get("test/scripted")
    check_vector_env(lambda n_envs: kind(workers=workers).build(n_envs))  # type: ignore[call-arg]


def test_the_function_stays_a_function_and_may_be_defined_again() -> None:
    assert isinstance(scripted(), Scripted)

    def again() -> Scripted:
        return Scripted()

    environment("test/again")(again)
    environment("test/again")(again)  # a notebook's cell run twice
    with pytest.raises(ConfigError, match="registered already"):
        environment("test/again")(scripted)
    with pytest.raises(ConfigError, match="must be a function"):
        environment("test/number")(3)


def test_a_config_of_ones_own() -> None:
    @environment("test/short")
    @dataclass(frozen=True)
    class ShortConfig(EnvConfig):
        length: int = option(3, help="steps of an episode", ge=1)

        def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
            return pettingzoo_vector_env(Scripted, n_envs, workers=0, max_steps=self.length)

    experiment = Experiment.compose("env=test/short", "env.length=2")
    with experiment.env.build(1) as env:
        env.reset(0)
        ends = [bool(env.step({"a": torch.zeros(1, 3, dtype=torch.int64)}).done) for _ in range(4)]
    assert ends == [False, True, False, True]
