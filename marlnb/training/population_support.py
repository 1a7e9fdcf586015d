"""How a training run reaches leagues and evolution, in a layer above: the package's root registers what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from marlnb.envs.vector import VectorEnv
    from marlnb.experiment import Experiment
    from marlnb.specs import EnvSpec
    from marlnb.training.runs.run_folder import RunFolder


class PopulationSupport(NamedTuple):
    """What leagues and evolution provide.

    Attributes:
        build_loop: the `TrainingLoop` of a league or of a population: of an experiment, an environment, a device and
            the run's folder.
        learners_experiment: the experiment of the learners that a league's checkpoint has by group of agents.
        winner_experiment: that of a population's checkpoint: of an experiment, the environment's spec and the state.
        winner_networks: the part of a population's state that `winner_experiment` reads.
        open_league: the league of a run, as `run.league` gives it.
        open_population: the population of a run, as `run.population` gives it.
    """

    build_loop: Callable[[Experiment, VectorEnv, torch.device, Path], Any]
    learners_experiment: Callable[[Experiment, EnvSpec], Experiment]
    winner_experiment: Callable[[Experiment, EnvSpec, Mapping[str, Any]], Experiment]
    winner_networks: Callable[[Mapping[str, Any]], dict[str, Any]]
    open_league: Callable[[RunFolder], Any]
    open_population: Callable[[RunFolder], Any]


_registered: list[PopulationSupport] = []


def register_populations(support: PopulationSupport) -> None:
    _registered[:] = [support]


def population_support() -> PopulationSupport:
    return _registered[0]
