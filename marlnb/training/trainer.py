"""Trainer: an iterator that collects, learns and reports. Pausing is not calling it.

On a CPU, N + M iterations and a resume at N give the same bits: a checkpoint holds everything that the next iteration
depends on. An environment that cannot be saved is reset with a known seed at each checkpoint, in the run that goes on
as well.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.training.callbacks import TrainingCallback
from marlnb.training.collect.episode_statistics import ENOUGH_EPISODES
from marlnb.training.collect.threads import torch_threads
from marlnb.training.deadline import Deadline
from marlnb.training.learners import check_device, check_length
from marlnb.training.loggers import Logger, check_loggers, open_loggers
from marlnb.training.loop import Advance, Loop
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.policies.evaluator import Evaluator
from marlnb.training.report import Report
from marlnb.training.runs.checkpoint import Checkpoint, drop_stop_checkpoints, rotate_checkpoints, save_checkpoint
from marlnb.training.runs.files import JOB_VARIABLE
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import EVALUATION, LOCK, STOP, Origin, Run, State

STATUS_INTERVAL_S = 1.0
DONE_AGAIN_S = 600.0  # of training that a stopped batch job does again, rather than go on otherwise than undisturbed


class Trainer:
    """Trains an experiment in a run folder, from where the folder's last checkpoint is.

    Each `next` is one iteration and gives a Report. Iterations end with the experiment's frames, with its target
    return, after `ask_to_stop`, or in time before the allocation ends. Use it in a `with`, or `close` it: that saves
    what was learnt, frees the environment and gives up the folder's lock.

    Attributes:
        state: "running" until it ends: "complete", "stopped" or "failed".
        iteration, frames: done since the run began.
        stopped_because: why it was stopped; empty where it was not.
        allocation_ends: whether that was the end of what it runs on.

    Raises:
        RunError: the folder is being trained by someone else, or its environment has changed.
        ConfigError, EnvError: the experiment cannot be run.
        CheckpointError: the last checkpoint does not fit the experiment, or is damaged.
    """

    def __init__(self, experiment: Experiment, run: Run, callbacks: Sequence[TrainingCallback] = ()) -> None:
        check_loggers(experiment.loggers)
        device = check_device(experiment.device)
        self.experiment, self.run = experiment, run
        self.state: State = "running"
        self.iteration = self.frames = 0
        self._seconds = self._rate = 0.0
        self._evaluation_score: float | None = None
        self._stop_reason: str | None = None
        self.stopped_because = ""
        self.allocation_ends = False
        self._iteration_s = 0.0
        self._deadline = Deadline()
        self._saved_at, self._seconds_saved = 0, 0.0
        self._left_unsaved: int | None = None
        self._in_job = bool(os.environ.get(JOB_VARIABLE))
        self._status_at = 0.0
        self._closed = False
        self._lock = RunLock(run.path / LOCK)
        self._env: VectorEnv | None = None
        self._evaluator = Evaluator(experiment, run.path / EVALUATION)
        self._loggers: list[Logger] = []
        self._watchers: list[TrainingCallback] = []
        try:
            self._env = build_env(experiment, experiment.n_envs, device=experiment.device)
            run.write_spec(self._env.spec)
            self._env.announce(run.path)
            with torch_threads(experiment.threads):  # the bits of initial weights depend on it
                self._loop = Loop(experiment, self._env, device)
            check_length(experiment, self._env.spec)
            self._begin()
            for callback in callbacks:
                self._watchers.append(callback)
                callback.begin(self)
        except BaseException as error:
            self._fail(error)
            raise

    @staticmethod
    def resume(run: Run) -> Trainer:
        """Goes on from the run's last checkpoint, from the start where it has none."""
        return Trainer(run.experiment, run)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The policies as they are now, by group."""
        return self._loop.policies

    @property
    def origin(self) -> Origin:
        """Which weights `policies` have now: their checkpoint's where this iteration has one, else a hash of them."""
        if self._saved_at == self.iteration and self.iteration:
            return Origin(self.iteration, self.run.checkpoint(self.iteration).sha256)
        return Origin(self.iteration, weights_sha256(self.policies))

    @property
    def score(self) -> float | None:
        """Mean return per agent averaged over groups: of the last evaluation, else of recent episodes."""
        return self._evaluation_score if self.experiment.evaluate_every else self._loop.scores.recent_score

    def __iter__(self) -> Iterator[Report]:
        return self

    def __next__(self) -> Report:
        if self.state == "failed":
            raise RunError(f"this training has failed; resume {self.run.path}: its last checkpoint is whole")
        self._look_for_end()
        if self.state != "running":
            self.close()
            raise StopIteration
        try:
            with torch_threads(self.experiment.threads):
                return self._iterate()
        except BaseException as error:
            self._fail(error)
            raise

    def ask_to_stop(self, reason: str = "asked to") -> None:
        """The iteration under way is finished and saved, then the training ends; safe from a signal handler."""
        self._stop_reason = reason
        if self._env is not None:
            self._env.hurry()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop, by a signal or `ask_to_stop`, or its allocation is about to end."""
        return self._stop_reason is not None or self._deadline.reason_to_stop(self._iteration_s) is not None

    def tell(self, state: State) -> None:
        """Says in the run's status that the training, which goes on, is running or paused; a sign of life as well."""
        self._lock.touch()
        self._write_status(state)

    def save(self) -> Checkpoint:
        """A checkpoint of now. An environment that cannot be saved is reset, as at every checkpoint.

        Raises:
            CheckpointError: it cannot be written; the earlier ones are whole.
        """
        cannot_be_saved = self._loop.env.state_dict() is None
        if cannot_be_saved:
            self._loop.begin(self.iteration)
        own = {"seconds": self._seconds, "evaluation_score": self._evaluation_score}
        began, folder = time.perf_counter(), self.run.path / "checkpoints"
        state = {**self._loop.state_dict(), **own}
        saved = save_checkpoint(
            folder,
            state,
            iteration=self.iteration,
            frames=self.frames,
            score=self.score,
            at_stop=self._in_job and self.state == "stopped" and not self._is_scheduled,
        )
        self._rotate(folder)
        self._saved_at, self._seconds_saved = self.iteration, self._seconds
        self._deadline.saved(time.perf_counter() - began)
        return saved

    def close(self) -> None:
        """Saves what is not yet saved, and frees everything; safe to call twice."""
        if self._closed:
            return
        try:
            if self._saved_at != self.iteration and self._is_to_be_saved(ending=True):
                self.save()
        except BaseException as error:
            self._fail(error)
            raise
        if self.state == "running":
            self.state = "stopped"
        self.run.log_event(f"{self.state} at iteration {self.iteration}, {self.frames} frames")
        self._release()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        found = self.run.checkpoints
        if found:
            self._restore(found[-1])
        else:
            self._loop.begin(0)
        self.run.cut_metrics(self.iteration)
        self._loggers = open_loggers(self.experiment, self.run)
        where = f"from iteration {self.iteration}, {self.frames} frames" if found else "from the start"
        self.run.log_event(f"training {where}")
        if self._deadline.ignored:
            self.run.log_event(self._deadline.ignored)
        self._write_status()

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.load()
        try:
            self.iteration = self._saved_at = checkpoint.iteration
            self.frames, self._seconds = checkpoint.frames, state["seconds"]
            self._evaluation_score = state["evaluation_score"]
            self._loop.load_state_dict(state, checkpoint.iteration)
            self._seconds_saved = self._seconds
        except KeyError as error:
            raise CheckpointError(f"{checkpoint.path} lacks {error}; it is no checkpoint of a training") from error

    def _iterate(self) -> Report:
        began = time.perf_counter()
        advance = self._loop.advance()
        self.iteration += 1
        self.frames += self.experiment.iteration_frames
        self._rate = self.experiment.iteration_frames / advance.seconds
        evaluation = self._evaluate(self._seconds + advance.seconds)
        self._iteration_s = time.perf_counter() - began
        self._seconds += self._iteration_s
        report = self._report(advance, evaluation)
        self.run.append_metrics(report.to_json())
        for logger in self._loggers:
            logger.log(report)
        self._look_for_end()
        if self._is_to_be_saved(ending=self.state != "running"):
            self.save()
        if self.state != "running" or time.monotonic() - self._status_at >= STATUS_INTERVAL_S:
            self._lock.touch()
            self._write_status()
        for callback in self._watchers:
            callback.after_iteration(self)
        return report

    @property
    def _is_scheduled(self) -> bool:
        """Whether a training that nobody stops has a checkpoint here as well."""
        return self.iteration % self.experiment.checkpoint_every == 0 or self.state == "complete"

    def _is_to_be_saved(self, *, ending: bool) -> bool:
        """Whether a checkpoint is due: at its time, and when a training ends.

        A checkpoint resets an environment that cannot be saved, and so changes what follows. A batch job ends in the
        same bits however often it is stopped, so there a few minutes' work is left unsaved at a stop, to be done again.
        """
        if self._is_scheduled or not ending or not self._in_job or self._loop.env.state_dict() is not None:
            return self._is_scheduled or ending
        if self._seconds - self._seconds_saved < DONE_AGAIN_S:
            told = f"what was done since iteration {self._saved_at} is done again"
        else:
            told = f"it is reset at iteration {self.iteration}, which changes what follows"
        if self._left_unsaved != self.iteration:
            self.run.log_event(f"the environment cannot be saved: {told}")
        self._left_unsaved = self.iteration
        return self._seconds - self._seconds_saved >= DONE_AGAIN_S

    def _rotate(self, folder: Path) -> None:
        """Drops old checkpoints; in a batch job those made at stops as soon as the next scheduled one is there."""
        if not self._in_job:
            rotate_checkpoints(folder, self.experiment.keep_checkpoints)
        elif self._is_scheduled:
            drop_stop_checkpoints(folder, self.iteration)
            rotate_checkpoints(folder, self.experiment.keep_checkpoints)

    def _report(self, advance: Advance, evaluation: dict[str, float]) -> Report:
        ended = advance.ended
        return Report(
            iteration=self.iteration,
            frames=self.frames,
            seconds=self._seconds,
            episodes=len(ended),
            returns=ended.group_means(),
            agent_returns=ended.agent_means(self._loop.env.spec),
            recent_return=self._loop.scores.recent_score,
            length=float(ended.lengths.mean()) if len(ended) else None,
            learning=advance.learning,
            evaluation=evaluation,
            frames_per_second=self._rate,
            stepping_s=advance.stepping_s,
            acting_s=advance.acting_s,
            learning_s=advance.learning_s,
        )

    def _evaluate(self, seconds: float) -> dict[str, float]:
        experiment = self.experiment
        last = self.frames >= experiment.frames
        if not experiment.evaluate_every or (self.iteration % experiment.evaluate_every and not last):
            return {}
        table, found = self._evaluator.evaluate(self.policies)
        self._evaluation_score = found.score
        self.run.append_evaluation(
            {"iteration": self.iteration, "frames": self.frames, "seconds": seconds, "returns": table.to_json()}
        )
        return found.return_mean

    def _look_for_end(self) -> None:
        if self.state != "running":
            return
        stop = self.run.path / STOP
        if self.frames >= self.experiment.frames:
            self.state = "complete"
        elif self._target_reached():
            self.state = "complete"
            self.run.log_event(f"target return {self.experiment.target_return} reached: {self.score}")
        elif stop.exists() or self._stop_reason is not None:
            self._stop(self._stop_reason or _told_in(stop) or "the file STOP")
            stop.unlink(missing_ok=True)
        elif (ends := self._deadline.reason_to_stop(self._iteration_s)) is not None:
            self.allocation_ends = True
            self._stop(ends)

    def _stop(self, reason: str) -> None:
        self.run.log_event(f"stopping: {reason}")
        self.stopped_because = reason
        self.state = "stopped"

    def _target_reached(self) -> bool:
        target, score = self.experiment.target_return, self.score
        if target is None or score is None or score < target:
            return False
        return self.experiment.evaluate_every > 0 or self._loop.scores.recent_episodes >= ENOUGH_EPISODES

    def _fail(self, error: BaseException) -> None:
        """Says what happened and frees everything; the last checkpoint stays. Nothing here may hide `error`."""
        interrupted = isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))
        self.state = "stopped" if interrupted else "failed"
        with suppress(OSError):  # a full disk, as `error` says
            self.run.log_event(f"{self.state} in iteration {self.iteration + 1}: {error!r}")
            if not interrupted:
                self.run.log_event("".join(traceback.format_exception(error)).rstrip())
        self._release(error=f"{type(error).__name__}: {error}")

    def _release(self, **facts: Any) -> None:
        self._closed = True
        with suppress(OSError):
            self._write_status(**facts)
        try:
            for callback in self._watchers:
                callback.end(self)
            for resource in (*self._loggers, self._env, self._evaluator):
                if resource is not None:
                    resource.close()
        finally:
            self._lock.release()

    def _write_status(self, state: State | None = None, **facts: Any) -> None:
        self._status_at = time.monotonic()
        left = max(0, self.experiment.frames - self.frames)
        self.run.write_status(
            state or self.state,
            iteration=self.iteration,
            frames=self.frames,
            frames_total=self.experiment.frames,
            frames_per_second=self._rate,
            eta_s=left / self._rate if self._rate and self.state == "running" else None,
            **({"reason": self.stopped_because} if self.stopped_because else {}),
            **facts,
        )


def _told_in(request: Path) -> str:
    """Why somebody asked, as they wrote it; empty where they did not."""
    try:
        return request.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
