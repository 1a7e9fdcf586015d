"""The runs whose policies an experiment uses: those of frozen groups, and opponents by which a population is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.evolution_config import RANDOM, EvolutionConfig
from marlnb.experiment import Experiment
from marlnb.paths import expanded

Algorithm = TypeVar("Algorithm")


def other_runs(experiment: Experiment) -> list[Path]:
    """Their folders."""
    algorithms = (experiment.algorithm, *experiment.algorithms.values())
    frozen = [each.run for each in algorithms if isinstance(each, FrozenConfig) and each.run]
    references = () if experiment.evolution is None else experiment.evolution.references
    return [expanded(path) for path in (*frozen, *references) if path != RANDOM]


def with_absolute_runs(experiment: Experiment) -> Experiment:
    """The experiment with their folders in full, so that it means the same in every working folder."""
    if not other_runs(experiment):
        return experiment
    algorithms = {name: _absolute(algorithm) for name, algorithm in experiment.algorithms.items()}
    evolution = None if experiment.evolution is None else _with_absolute_references(experiment.evolution)
    return replace(experiment, algorithm=_absolute(experiment.algorithm), algorithms=algorithms, evolution=evolution)


def _absolute(algorithm: Algorithm) -> Algorithm:
    if not isinstance(algorithm, FrozenConfig) or not algorithm.run:
        return algorithm
    return replace(algorithm, run=_full(algorithm.run))


def _with_absolute_references(evolution: EvolutionConfig) -> EvolutionConfig:
    return replace(
        evolution, references=tuple(name if name == RANDOM else _full(name) for name in evolution.references)
    )


def _full(path: str) -> str:
    return str(expanded(path).absolute())
