"""How a training reaches leagues, which are in a layer above: the package's root registers what it needs of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from marlnb.envs.vector import VectorEnv
    from marlnb.experiment import Experiment
    from marlnb.specs import EnvSpec
    from marlnb.training.runs.run_folder import RunFolder


class LeagueSupport(NamedTuple):
    """What leagues provide.

    Attributes:
        build_loop: the `TrainingLoop` of a league's training: of an experiment, an environment, a device and the run's
            folder.
        learners_experiment: the experiment of the learners that a league's checkpoint has by group of agents.
        open_league: the league of a run, as `run.league` gives it.
    """

    build_loop: Callable[[Experiment, VectorEnv, torch.device, Path], Any]
    learners_experiment: Callable[[Experiment, EnvSpec], Experiment]
    open_league: Callable[[RunFolder], Any]


_registered: list[LeagueSupport] = []


def register_league(support: LeagueSupport) -> None:
    _registered[:] = [support]


def league_support() -> LeagueSupport:
    return _registered[0]
