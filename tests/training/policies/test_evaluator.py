"""Evaluations during a training run: the same episodes, however many environments step at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.envs.external.interface import ServedEnvs
from marlnb.experiment import Experiment
from marlnb.training.policies.evaluation import score_policies
from marlnb.training.policies.evaluator import Evaluator
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

SMALL = (
    "env=mpe/simple_spread",
    "algorithm=ippo",
    "n_envs=2",
    "rollout_steps=5",
    "frames=10",
    "evaluation_episodes=30",
)


def test_batched_environments_play_all_episodes_at_once(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL)
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        evaluator = Evaluator(experiment, tmp_path, ServedEnvs())
        table = evaluator.evaluate(trainer.policies).table
        assert evaluator._env is not None and evaluator._env.n_envs == 30
        few = score_policies(
            experiment.env.build(2), trainer.policies, episodes=30, seed=int(table.seed[0]), explore=False
        )
    np.testing.assert_array_equal(table.seed, few.seed)
    assert table.returns["agent"] == pytest.approx(few.returns["agent"], abs=1e-3)
