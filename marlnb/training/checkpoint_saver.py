"""CheckpointSaver: when a training run saves a checkpoint, which older ones it then deletes, and how it is restored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marlnb.disk import writing
from marlnb.display.formatting import count, marlnb_command, short_path
from marlnb.errors import CheckpointError, DiskError
from marlnb.experiment import Experiment
from marlnb.training.limits import Trained
from marlnb.training.loop import TrainingLoop
from marlnb.training.returns import TrainingReturns
from marlnb.training.runs.checkpoints.checkpoint import (
    Checkpoint,
    checkpoint_folders,
    drop_stop_checkpoints,
    remove_leftovers,
    rotate_checkpoints,
    save_checkpoint,
    set_aside,
)
from marlnb.training.runs.files import (
    CODE,
    EVALUATIONS,
    EXPERIMENT,
    JOB_VARIABLE,
    METRICS,
    SPEC,
    STATUS,
    is_damage,
    remove_temporaries,
)
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.states import RunState

WRITTEN = (EXPERIMENT, SPEC, CODE, METRICS, EVALUATIONS, STATUS)  # only by the process that holds the folder's lock
MAX_REPEATED_S = 600.0  # of training that a stopped batch job repeats, to end in the bits of an undisturbed run


class CheckpointSaver:
    """Saves the checkpoints of a training run, and restores it from one.

    Args:
        experiment: what is trained.
        run: the folder.
        loop: what is saved and restored.
        returns: saved and restored with the loop.

    Attributes:
        iteration: of the last checkpoint; 0 if there is none.
        seconds: of training at the last checkpoint.
        save_s: how long the last one took to save.
    """

    def __init__(self, experiment: Experiment, run: Run, loop: TrainingLoop, returns: TrainingReturns) -> None:
        self._experiment, self._run, self._loop, self._returns = experiment, run, loop, returns
        self._folder = run.path / "checkpoints"
        self.iteration, self.seconds, self.save_s = 0, 0.0, 0.0
        self._left_unsaved: int | None = None
        self._in_job = bool(os.environ.get(JOB_VARIABLE))

    def save(self, trained: Trained, state: RunState) -> Checkpoint:
        """`Trainer.save`.

        Args:
            trained: how much has been trained.
            state: of the training.
        """
        returns = self._returns.after(trained.iterations, self._loop.episodes)
        if self._loop.env.state_dict() is None:
            self._loop.begin(trained.iterations)
        start = time.perf_counter()
        is_scheduled = self._is_scheduled(trained, state)
        saved = save_checkpoint(
            self._folder,
            {
                **self._loop.state_dict(),
                **self._returns.state_dict(),
                "seconds": trained.seconds,
                "agent_steps": trained.agent_steps,
            },
            iteration=trained.iterations,
            frames=trained.frames,
            returns=dict(returns),
            at_stop=self._in_job and state == "stopped" and not is_scheduled,
        )
        if is_scheduled or not self._in_job:  # in a batch job, checkpoints made at stops stay until the next one
            self._delete_older(trained.iterations)
        self.iteration, self.seconds, self.save_s = trained.iterations, trained.seconds, time.perf_counter() - start
        return saved

    def origin_of(self, iteration: int) -> Origin | None:
        """The last checkpoint, if it is of this iteration."""
        is_saved = 0 < iteration == self.iteration
        return Origin(iteration, self._run.checkpoint(iteration).sha256) if is_saved else None

    def restore_newest(self) -> Trained | None:
        """Restores loop and returns from the newest checkpoint that can be read; None: none was saved.

        Damaged ones after it are set aside, so that the next one that is saved is the newest. One that cannot be read
        now, as on a disk that does not answer, may be whole: no older one is used instead.

        Returns:
            how much had been trained.
        Raises:
            CheckpointError: all are damaged or gone; or it cannot be read, is of something else, or of another
                experiment.
        """
        damaged: dict[Path, str] = {}
        for path in reversed(checkpoint_folders(self._folder)):
            try:
                checkpoint = Checkpoint.open(path)
                state = checkpoint.load()
            except CheckpointError as error:
                if not is_damage(error):
                    advice = "no older checkpoint was used instead; resume when it can be read"
                    raise CheckpointError(f"{error}; {advice}") from error
                damaged[path] = str(error)
                continue
            restored = self._restore(checkpoint, state)
            self._set_aside(damaged)
            if not checkpoint.at_stop:
                self._delete_older(checkpoint.iteration)
            return restored
        if damaged:
            iterations, newest = ", ".join(path.name for path in reversed(damaged)), next(iter(damaged.values()))
            raise CheckpointError(
                f"{self._run.shown_path}: none of the checkpoints can be read ({iterations}); the newest: {newest}; "
                f"delete them and {METRICS} to train from the start"
            )
        self._check_none_lost()
        return None

    def _check_none_lost(self) -> None:
        """Raises CheckpointError where no checkpoint exists, but one was saved. A kill may come before the first."""
        rows = read_rows(self._run.path / METRICS)
        trained = max((row["iteration"] for row in rows), default=0)
        is_missing = not self._folder.is_dir()  # a new run has it; a link may lead nowhere
        was_saved = trained > self._experiment.checkpoint_every or self._run.status().get("checkpoint")
        if trained and (is_missing or was_saved):
            raise CheckpointError(
                f"{self._run.shown_path} was trained for {count(trained, 'iteration')}, but its checkpoints are gone: "
                f"there are none in {short_path(self._folder.resolve())}; copy them back, or delete {METRICS} to train "
                "from the start"
            )

    def _set_aside(self, damaged: Mapping[Path, str]) -> None:
        for path, why in damaged.items():
            with writing(self._folder):
                name = set_aside(path).name
            self._run.log_event(f"checkpoint {path.name} is damaged and was not used, it is now {name}: {why}")

    def _delete_older(self, iteration: int) -> None:
        """Deletes checkpoints that are not kept once a training run has that of this iteration."""
        with writing(self._folder):
            drop_stop_checkpoints(self._folder, iteration)
            rotate_checkpoints(self._folder, self._experiment.keep_checkpoints)

    def _restore(self, checkpoint: Checkpoint, state: dict[str, Any]) -> Trained:
        spec = self._loop.env.spec
        try:
            # checkpoints of earlier versions have no agent steps
            agent_steps = state.get("agent_steps", checkpoint.frames * len(spec.agents))
            trained = Trained(checkpoint.iteration, checkpoint.frames, state["seconds"], agent_steps)
            self._returns.load_state_dict(state, spec.group_names)
            self._loop.load_state_dict(state, checkpoint.iteration)
        except KeyError as error:
            raise CheckpointError(f"{checkpoint.path} lacks {error}; it is not a training run's checkpoint") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{checkpoint.path} is not a checkpoint of a training run: {error}") from error
        self.iteration, self.seconds = trained.iterations, trained.seconds
        return trained

    @contextmanager
    def saying_what_is_saved(self) -> Iterator[None]:
        """Adds the last checkpoint, and what to do, to the error of a disk that refuses a write."""
        try:
            yield
        except DiskError as error:
            saved = f"checkpoint {self.iteration} is complete" if self.iteration else "no checkpoint is saved yet"
            again = f"`{marlnb_command('resume', self._run.shown_path)}` continues"
            named = DiskError(f"{error}; {saved}; when the disk can be written, {again}")
            named.errno, named.problem = error.errno, error.problem
            raise named from error

    def tidy_up(self) -> None:
        """Removes what a training run that was killed was writing or deleting."""
        with writing(self._folder):
            remove_temporaries(self._run.path, WRITTEN)
            remove_leftovers(self._folder)

    def is_due(self, trained: Trained, state: RunState, *, ending: bool) -> bool:
        """Whether a checkpoint is due: on schedule, and when a training run ends.

        A checkpoint resets an environment that cannot be saved, which changes what follows. A batch job must end in the
        same bits however often it is stopped. So it leaves a few minutes' work unsaved at a stop and repeats it later.
        """
        is_scheduled = self._is_scheduled(trained, state)
        if is_scheduled or not ending or not self._in_job or self._loop.env.state_dict() is not None:
            return is_scheduled or ending
        is_too_long = trained.seconds - self.seconds >= MAX_REPEATED_S
        consequence = f"the iterations after {self.iteration} are repeated"
        if is_too_long:
            consequence = f"it is reset at iteration {trained.iterations}, which changes what follows"
        if self._left_unsaved != trained.iterations:
            self._run.log_event(f"the environment cannot be saved: {consequence}")
        self._left_unsaved = trained.iterations
        return is_too_long

    def _is_scheduled(self, trained: Trained, state: RunState) -> bool:
        """Whether an undisturbed training run has a checkpoint here too."""
        return trained.iterations % self._experiment.checkpoint_every == 0 or state == "complete"
