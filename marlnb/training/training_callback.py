"""TrainingCallback: what is called between the iterations of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer


class TrainingCallback(Protocol):
    """Called between the iterations of a training: `train(..., callbacks=[...])`. It must not change the training.

    If it raises, the training ends as failed; the last checkpoint is complete.
    """

    def begin(self, trainer: Trainer) -> None:
        """Called before the first iteration, after a start or a resume: `trainer.iteration` iterations are done."""

    def after_iteration(self, trainer: Trainer) -> None:
        """Called after each iteration, once its checkpoint, if it has one, is saved."""

    def end(self, trainer: Trainer) -> None:
        """Called once when the training ends for any reason; `trainer.state` says which."""
