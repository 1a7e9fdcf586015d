"""Who may watch a training: what `train(..., callbacks=...)` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer


class TrainingCallback(Protocol):
    """Someone who looks at a training between its iterations and leaves everything as it was.

    An error that it raises ends the training as failed; the last checkpoint is whole.
    """

    def begin(self, trainer: Trainer) -> None:
        """Called before the first iteration, from the start or after a resume: `trainer.iteration` are done."""

    def after_iteration(self, trainer: Trainer) -> None:
        """Called after each iteration, when its checkpoint, if it has one, is saved."""

    def end(self, trainer: Trainer) -> None:
        """Called once, when the training ends in whichever way; `trainer.state` says how."""
