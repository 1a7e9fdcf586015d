"""The runs whose policies an experiment uses: those of frozen groups, and opponents by which a population is judged."""

from __future__ import annotations

from pathlib import Path

from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.evolution_config import RANDOM
from marlnb.experiment import Experiment
from marlnb.paths import expanded


def other_runs(experiment: Experiment) -> list[Path]:
    """Their folders."""
    algorithms = (experiment.algorithm, *experiment.algorithms.values())
    frozen = [each.run for each in algorithms if isinstance(each, FrozenConfig) and each.run]
    references = () if experiment.evolution is None else experiment.evolution.references
    return [expanded(path) for path in (*frozen, *references) if path != RANDOM]
