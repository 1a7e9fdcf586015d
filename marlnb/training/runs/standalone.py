"""Experiments that mean the same in every working folder, and whatever becomes of the files that they name."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.evolution_config import RANDOM, EvolutionConfig
from marlnb.experiment import Experiment
from marlnb.paths import expanded

Algorithm = TypeVar("Algorithm")


def standalone(experiment: Experiment) -> Experiment:
    """The experiment with the folders of other runs in full, and with the options of its environment `standalone`.

    Raises:
        ConfigError: a file that it names cannot be read or used.
    """
    evolution = experiment.evolution
    return replace(
        experiment,
        env=experiment.env.standalone(),
        algorithm=_absolute(experiment.algorithm),
        algorithms={name: _absolute(algorithm) for name, algorithm in experiment.algorithms.items()},
        evolution=None if evolution is None else _with_absolute_references(evolution),
    )


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
