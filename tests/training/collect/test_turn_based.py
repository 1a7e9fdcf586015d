"""Training where agents wait, die and see dictionaries: through the Trainer, as users run it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marlnb
from marlnb.config import ENVIRONMENTS
from marlnb.experiment import Experiment
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.training.trainer import Trainer
from tests.envs.sample_envs import Scripted

TINY = ("algorithm.epochs=1", "algorithm.minibatch_frames=64", "threads=1")
TURNS = ("env=pettingzoo/tictactoe", "env.workers=0", "n_envs=2", "rollout_steps=16", "checkpoint_every=2")


def advance(trainer: Trainer, iterations: int) -> list[dict[str, dict[str, float]]]:
    return [dict(next(trainer).learning) for _ in range(iterations)]


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    named = {f"{name}.{key}": v for name, p in trainer.policies.items() for key, v in p.state_dict().items()}
    return {key: value.clone() for key, value in named.items()}


@pytest.mark.parametrize("apart", [False, True])
def test_a_resumed_game_of_turns_gives_the_same_bits(tmp_path: Path, apart: bool) -> None:
    groups = ("env.groups.x=[player_1]", "env.groups.o=[player_2]") if apart else ()
    sizes = ("model=gru", "model.hidden=[8]", "model.recurrent_size=4")
    experiment = Experiment.compose(*TURNS, *groups, "algorithm=mappo", *sizes, *TINY, "frames=10_000")
    with Trainer(experiment, Run.create(tmp_path / "whole", experiment)) as trainer:
        expected, weights = advance(trainer, 5), weights_of(trainer)
    with Trainer(experiment, Run.create(tmp_path / "halves", experiment)) as trainer:
        advance(trainer, 3)
        trainer._saver.iteration = trainer.iteration  # as a kill would: the third is lost
    torch.manual_seed(123)
    with Trainer.resume(Run.open(tmp_path / "halves")) as trainer:
        assert trainer.iteration == 2
        assert advance(trainer, 3) == expected[2:]
        assert all(torch.equal(weights[key], value) for key, value in weights_of(trainer).items())


@pytest.mark.parametrize("algorithm", ["ippo", "mappo"])
def test_knights_and_archers_that_die_learn_as_they_come(tmp_path: Path, algorithm: str) -> None:
    """Vector observations (N, F) without a model of one's own, and agents that are dead for much of the rollout."""
    options = ("env.workers=0", "env.kwargs.max_cycles=90", "env.kwargs.spawn_delay=1")
    experiment = Experiment.compose(
        *("env=pettingzoo/knights_archers_zombies", *options, f"algorithm={algorithm}", "model.hidden=[8]"),
        *("n_envs=1", "rollout_steps=100", "frames=200", *TINY),
    )
    run = train(experiment, tmp_path / "run", progress=False)
    assert run.spec.group("knight").observation.shape == (27, 5) and run.spec.simultaneous
    learning = run.metrics().filter(like="learning/")
    assert len(learning) == 2 and np.isfinite(learning.to_numpy()).all()


class Instructed(Scripted):
    """Sees a dictionary: where it is, and which of three signs is shown."""

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Dict({"place": spaces.Box(-math.inf, math.inf, (3,), np.float32), "sign": spaces.Discrete(3)})

    def _see(self, agent: str) -> dict[str, object]:  # type: ignore[override]
        return {"place": super()._see(agent).astype(np.float32), "sign": self.t % 3}


def test_dictionaries_are_flattened(tmp_path: Path) -> None:
    if "test/instructed" not in ENVIRONMENTS.names():
        marlnb.environment("test/instructed")(Instructed)
    experiment = Experiment.compose(
        *(
            "env=test/instructed",
            "env.workers=0",
            "algorithm=mappo",
            "model.hidden=[8]",
            "n_envs=2",
            "rollout_steps=16",
        ),
        *("frames=64", *TINY),
    )
    run = train(experiment, tmp_path / "run", progress=False)
    assert run.spec.groups[0].observation.shape == (6,)
    assert evaluate(run, episodes=2, seed=0).episodes == 2
