"""The runs whose policies an experiment uses for groups that do not learn: `algorithms.agent=frozen`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.experiment import Experiment
from marlnb.paths import expanded

Algorithm = TypeVar("Algorithm")


def frozen_runs(experiment: Experiment) -> list[Path]:
    """Their folders."""
    algorithms = (experiment.algorithm, *experiment.algorithms.values())
    return [expanded(each.run) for each in algorithms if isinstance(each, FrozenConfig) and each.run]


def with_absolute_runs(experiment: Experiment) -> Experiment:
    """The experiment with their folders in full, so that it means the same in every working folder."""
    if not frozen_runs(experiment):
        return experiment
    algorithms = {name: _absolute(algorithm) for name, algorithm in experiment.algorithms.items()}
    return replace(experiment, algorithm=_absolute(experiment.algorithm), algorithms=algorithms)


def _absolute(algorithm: Algorithm) -> Algorithm:
    if not isinstance(algorithm, FrozenConfig) or not algorithm.run:
        return algorithm
    return replace(algorithm, run=str(expanded(algorithm.run).absolute()))
