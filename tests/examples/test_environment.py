"""The worked example of an environment passes the contract, trains and reaches its optimum."""

from __future__ import annotations

from pathlib import Path

import marlnb as mnb
from marlnb.envs.contract import check_vector_env
from tests.examples import environment  # noqa: F401  (registers examples/meeting)


def test_example_environment_passes_the_contract() -> None:
    config = mnb.Experiment.compose("env=examples/meeting", "env.workers=0", "algorithm=ippo").env
    check_vector_env(config.build)


def test_agents_learn_to_meet(tmp_path: Path) -> None:
    """On 5 cells both step towards the middle: two steps, the second of which earns 1. The return is 1 - 0.1 = 0.9."""
    experiment = mnb.Experiment.compose(
        "env=examples/meeting",
        "env.workers=0",
        "algorithm=ippo",
        "algorithm.lr=3e-3",
        "algorithm.gamma=0.9",
        "n_envs=16",
        "rollout_steps=20",
        "frames=12_800",
        "seed=0",
    )
    run = mnb.train(experiment, run=tmp_path / "run", progress=False)
    evaluation = mnb.evaluate(run, episodes=5)
    assert abs(evaluation.return_mean["walker"] - 0.9) < 1e-6
