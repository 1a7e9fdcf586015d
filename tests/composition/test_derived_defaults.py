"""Untuned experiments: defaults follow from speed, episode length and agents, and leave everything else alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest

from marlnb.algorithms.configs.a2c import A2CConfig
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.torchrl_loss import OnPolicyLossConfig
from marlnb.composition.derived_defaults import algorithm_defaults, rollout_defaults
from marlnb.config import ALGORITHMS
from marlnb.experiment import Experiment
from marlnb.specs import EnvFacts

if TYPE_CHECKING:
    from torchrl.objectives import LossModule


@pytest.mark.parametrize(
    ("facts", "n_envs", "rollout_steps"),
    [
        (EnvFacts(True, 25, 3), 256, 25),
        (EnvFacts(True, 5, 2), 256, 20),  # whole episodes, at least 16 steps
        (EnvFacts(True, 100, 4), 128, 100),  # at most 65,536 steps of agents
        (EnvFacts(True, 500, 3), 256, 64),
        (EnvFacts(True, 25, 100), 16, 25),
        (EnvFacts(False, 500), 16, 128),
    ],
)
def test_rollouts(facts: EnvFacts, n_envs: int, rollout_steps: int) -> None:
    assert rollout_defaults(facts) == {"n_envs": n_envs, "rollout_steps": rollout_steps}


def test_nothing_is_derived_where_nothing_is_known() -> None:
    assert rollout_defaults(EnvFacts()) == {}
    assert algorithm_defaults(IPPOConfig, EnvFacts(max_steps=25), 2048) == {}


def test_algorithms() -> None:
    batched = algorithm_defaults(IPPOConfig, EnvFacts(True, 25, 3), 6400)
    assert batched == {"gamma": 0.9, "lr": 1e-3, "epochs": 5, "minibatch_frames": 1600}
    assert algorithm_defaults(IPPOConfig, EnvFacts(False, 500), 2048) == {"gamma": 0.99}
    assert algorithm_defaults(IPPOConfig, EnvFacts(False, 50), 2048) == {"gamma": 0.95}
    off_policy = algorithm_defaults(ALGORITHMS.get("qmix"), EnvFacts(True, 100, 3), 6400)
    assert off_policy == {"gamma": 0.975, "lr": 1e-3, "tau": 0.02, "updates": 100}
    assert algorithm_defaults(ALGORITHMS.get("random"), EnvFacts(True, 25, 3), 6400) == {}


def test_algorithms_without_a_ratio_make_one_pass() -> None:
    """After the first pass, the gradient of such a loss is not that of the policy which collected the rollout."""

    @dataclass(frozen=True)
    class Reinforce(OnPolicyLossConfig):
        name: ClassVar[str] = "examples/reinforce"

        def build_loss(self, policy: object) -> LossModule:
            raise AssertionError

    facts = EnvFacts(True, 25, 3)
    for kind in (A2CConfig, Reinforce):
        assert "epochs" not in algorithm_defaults(kind, facts, 6400) and kind().epochs == 1


def test_the_defaults_of_a_users_own_class_stay() -> None:
    @dataclass(frozen=True)
    class Careful(IPPOConfig):
        lr: float = 1e-5

    assert "lr" not in algorithm_defaults(Careful, EnvFacts(True, 25, 3), 6400)


def test_the_composed_experiment_has_the_exact_values() -> None:
    experiment = Experiment.compose("env=vmas/navigation", "algorithm=iql", "env.continuous_actions=false")
    assert experiment.tuned == () and (experiment.n_envs, experiment.rollout_steps) == (128, 100)
    algorithm = experiment.to_json()["algorithm"]
    assert algorithm["updates"] == 200 and algorithm["gamma"] == 0.975
    worker = Experiment.compose("env=pettingzoo/multiwalker", "algorithm=iql", "n_envs=3")
    assert (worker.n_envs, worker.rollout_steps) == (3, 128)
