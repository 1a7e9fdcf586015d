"""CheckpointSaver: when a training saves a checkpoint, and which older ones it then deletes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marlnb.disk import writing
from marlnb.errors import DiskError
from marlnb.training.runs.checkpoint import (
    Checkpoint,
    drop_stop_checkpoints,
    list_checkpoints,
    remove_leftovers,
    rotate_checkpoints,
    save_checkpoint,
)
from marlnb.training.runs.files import (
    EVALUATIONS,
    EXPERIMENT,
    JOB_VARIABLE,
    METRICS,
    SPEC,
    STATUS,
    remove_temporaries,
)

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer

WRITTEN = (EXPERIMENT, SPEC, METRICS, EVALUATIONS, STATUS)  # only by who holds the folder's lock
MAX_REPEATED_S = 600.0  # of training that a stopped batch job repeats, to end in the bits of an undisturbed training


class CheckpointSaver:
    """Saves the checkpoints of a training.

    Attributes:
        iteration: of the last checkpoint; 0 if there is none.
        seconds: of training at the last checkpoint.
        save_s: how long the last one took to save.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.iteration, self.seconds, self.save_s = 0, 0.0, 0.0
        self._left_unsaved: int | None = None
        self._in_job = bool(os.environ.get(JOB_VARIABLE))

    def save(self) -> Checkpoint:
        """`Trainer.save`."""
        trainer = self._trainer
        if trainer.loop.env.state_dict() is None:
            trainer.loop.begin(trainer.iteration)
        start, folder = time.perf_counter(), trainer.run.path / "checkpoints"
        progress = {
            "seconds": trainer.seconds,
            "agent_steps": trainer.agent_steps,
            "evaluation_returns": trainer.evaluation_returns,
        }
        saved = save_checkpoint(
            folder,
            {**trainer.loop.state_dict(), **progress},
            iteration=trainer.iteration,
            frames=trainer.frames,
            returns=trainer.returns,
            at_stop=self._in_job and trainer.state == "stopped" and not self._is_scheduled,
        )
        if self._is_scheduled or not self._in_job:  # in a batch job, checkpoints made at stops stay until the next one
            with writing(folder):
                if self._in_job:
                    drop_stop_checkpoints(folder, trainer.iteration)
                rotate_checkpoints(folder, trainer.experiment.keep_checkpoints)
        self.iteration, self.seconds, self.save_s = trainer.iteration, trainer.seconds, time.perf_counter() - start
        return saved

    @contextmanager
    def saying_what_is_saved(self) -> Iterator[None]:
        """Adds the last checkpoint, and what to do, to the error of a disk that refuses a write."""
        try:
            yield
        except DiskError as error:
            saved = f"checkpoint {self.iteration} is complete" if self.iteration else "no checkpoint is saved yet"
            again = f"`marlnb resume {self._trainer.run.path}` continues"
            named = DiskError(f"{error}; {saved}; when the disk can be written, {again}")
            named.errno, named.problem = error.errno, error.problem
            raise named from error

    def tidy_up(self) -> None:
        """Removes what a training that was killed left: temporary files, and checkpoints that it was to delete."""
        folder = self._trainer.run.path / "checkpoints"
        with writing(folder):
            remove_temporaries(self._trainer.run.path, WRITTEN)
            remove_leftovers(folder)
            newest = list_checkpoints(folder)[-1:]
            if newest and not newest[0].at_stop:
                drop_stop_checkpoints(folder, newest[0].iteration)
                rotate_checkpoints(folder, self._trainer.experiment.keep_checkpoints)

    def is_due(self, *, ending: bool) -> bool:
        """Whether a checkpoint is due: on schedule, and when a training ends.

        A checkpoint resets an environment that cannot be saved, which changes what follows. A batch job must end in the
        same bits however often it is stopped. So it leaves a few minutes' work unsaved at a stop and repeats it later.
        """
        trainer = self._trainer
        if self._is_scheduled or not ending or not self._in_job or trainer.loop.env.state_dict() is not None:
            return self._is_scheduled or ending
        is_too_long = trainer.seconds - self.seconds >= MAX_REPEATED_S
        consequence = f"the iterations after {self.iteration} are repeated"
        if is_too_long:
            consequence = f"it is reset at iteration {trainer.iteration}, which changes what follows"
        if self._left_unsaved != trainer.iteration:
            trainer.run.log_event(f"the environment cannot be saved: {consequence}")
        self._left_unsaved = trainer.iteration
        return is_too_long

    @property
    def _is_scheduled(self) -> bool:
        """Whether an undisturbed training has a checkpoint here too."""
        trainer = self._trainer
        return trainer.iteration % trainer.experiment.checkpoint_every == 0 or trainer.state == "complete"
