"""PlannedTraining: one of several trainings of a command or a benchmark."""

from __future__ import annotations

from typing import Protocol

from marlnb.experiment import Experiment


class PlannedTraining(Protocol):
    """One training; `str` is its name in progress and messages."""

    @property
    def folder(self) -> str:
        """The run's folder, relative to the common folder."""

    @property
    def experiment(self) -> Experiment:
        """What is trained."""
