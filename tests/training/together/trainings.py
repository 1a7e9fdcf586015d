"""Runs that were trained together, compared with others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.together.joined import JoinedTrainings
from marlnb.training.together.train_together import train_together
from marlnb.training.trainer import Trainer


def together(folder: Path, experiments: Sequence[Experiment]) -> list[Run]:
    runs = [Run.create(folder / str(k), experiment) for k, experiment in enumerate(experiments)]
    assert train_together(runs) == {}
    return runs


def interrupted(folder: Path, experiments: Sequence[Experiment], iterations: int) -> list[Run]:
    """Runs that were trained together for some iterations, and ended without saving, as by a kill."""
    joined, runs = JoinedTrainings(), [Run.create(folder / str(k), each) for k, each in enumerate(experiments)]
    trainers = [Trainer(run.experiment, run, build=joined.build_loop) for run in runs]
    for _ in range(iterations):
        for trainer in trainers:
            next(trainer)
    for trainer in trainers:
        trainer.fail(KeyboardInterrupt())
    return runs


def tensors(value: Any, path: str = "") -> dict[str, torch.Tensor]:
    if isinstance(value, dict):
        return {name: x for key, part in value.items() for name, x in tensors(part, f"{path}/{key}").items()}
    return {path: value} if isinstance(value, torch.Tensor) else {}


def assert_equal(left: Run, right: Run, tolerance: float) -> None:
    ours, theirs = (run.checkpoint().load() for run in (left, right))
    assert tensors(ours).keys() == tensors(theirs).keys()
    for name, value in tensors(ours).items():
        other = tensors(theirs)[name]
        exact = tolerance == 0 or not value.is_floating_point() or name.startswith("/env")
        difference = 0.0 if torch.equal(value, other) else float((value.double() - other.double()).abs().max())
        assert difference <= (0.0 if exact else tolerance), f"{name} differs by {difference}"
    frames = [[learner["frames"] for learner in state["learners"].values()] for state in (ours, theirs)]
    assert frames[0] == frames[1]
