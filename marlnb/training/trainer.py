"""Trainer: an iterator that collects, learns and reports. A training is paused by not calling it.

On a CPU, N + M iterations and a resume after N give the same bits: a checkpoint holds everything that the next
iteration depends on. An environment that cannot be saved is reset with a known seed at each checkpoint, in the run that
continues as well.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from marlnb.envs.external.interface import interrupt, publish
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.episode_statistics import MIN_EPISODES
from marlnb.training.collect.threads import torch_threads
from marlnb.training.deadline import Deadline
from marlnb.training.learners import check_device, check_length
from marlnb.training.loggers import Logger, check_loggers, open_loggers
from marlnb.training.loop import Advance, Loop
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.policies.evaluator import Evaluator
from marlnb.training.report import Report
from marlnb.training.runs.checkpoint import Checkpoint, drop_stop_checkpoints, rotate_checkpoints, save_checkpoint
from marlnb.training.runs.files import EVALUATION, JOB_VARIABLE, LOCK, STOP
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.run_folder import State

STATUS_INTERVAL_S = 1.0
MAX_REPEATED_S = 600.0  # of training that a stopped batch job repeats, to end in the bits of an undisturbed training


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


class Trainer:
    """Trains an experiment in a run folder, from the folder's last checkpoint on.

    Each `next` is one iteration and returns a Report. The iterations end after the experiment's frames, at its target
    return, after `ask_to_stop`, or in time before the allocation ends. Use it in a `with` block, or call `close`: that
    saves what was learnt, frees the environment and releases the folder's lock.

    Attributes:
        experiment: what is trained.
        run: the folder.
        state: "running", then "complete", "stopped" or "failed".
        iteration: iterations since the run started.
        frames: frames since the run started.
        stopped_because: why it was stopped; empty if it was not.
        allocation_ends: whether it was stopped because its allocation ends.

    Raises:
        RunError: another process trains in the folder, or the environment has changed.
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
        self._callbacks: list[TrainingCallback] = []
        try:
            self._env = build_env(experiment, experiment.n_envs, device=experiment.device)
            run.write_spec(self._env.spec)
            publish(self._env, run.path)
            with torch_threads(experiment.threads):  # the bits of initial weights depend on it
                self._loop = Loop(experiment, self._env, device)
            check_length(experiment, self._env.spec)
            self._begin()
            for callback in callbacks:
                self._callbacks.append(callback)
                callback.begin(self)
        except BaseException as error:
            self._fail(error)
            raise

    @staticmethod
    def resume(run: Run) -> Trainer:
        """Continues from the run's last checkpoint, or from the start if it has none."""
        return Trainer(run.experiment, run)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The current policies by group."""
        return self._loop.policies

    @property
    def origin(self) -> Origin:
        """Which weights `policies` have now: those of this iteration's checkpoint if it has one, else their hash."""
        if self._saved_at == self.iteration and self.iteration:
            return Origin(self.iteration, self.run.checkpoint(self.iteration).sha256)
        return Origin(self.iteration, weights_sha256(self.policies))

    @property
    def score(self) -> float | None:
        """Mean return per agent averaged over groups, of the last evaluation or else of recent episodes."""
        return self._evaluation_score if self.experiment.evaluate_every else self._loop.episodes.recent_score

    def __iter__(self) -> Iterator[Report]:
        return self

    def __next__(self) -> Report:
        if self.state == "failed":
            raise RunError(f"this training has failed; resume {self.run.path}: its last checkpoint is complete")
        self._check_end()
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
        """The current iteration is finished and saved, then the training ends. Safe in a signal handler."""
        self._stop_reason = reason
        if self._env is not None:
            interrupt(self._env)

    @property
    def stopping(self) -> bool:
        """Whether it will stop after this iteration: by a signal, `ask_to_stop`, or the end of its allocation."""
        return self._stop_reason is not None or self._deadline.reason_to_stop(self._iteration_s) is not None

    def report_state(self, state: State) -> None:
        """Writes to the run's status that the training is running or paused; also a sign of life."""
        self._lock.touch()
        self._write_status(state)

    def save(self) -> Checkpoint:
        """Saves a checkpoint. An environment that cannot be saved is reset, as at every checkpoint.

        Raises:
            CheckpointError: it cannot be written; earlier checkpoints are complete.
        """
        if self._loop.env.state_dict() is None:
            self._loop.begin(self.iteration)
        start, folder = time.perf_counter(), self.run.path / "checkpoints"
        progress = {"seconds": self._seconds, "evaluation_score": self._evaluation_score}
        saved = save_checkpoint(
            folder,
            {**self._loop.state_dict(), **progress},
            iteration=self.iteration,
            frames=self.frames,
            score=self.score,
            at_stop=self._in_job and self.state == "stopped" and not self._is_scheduled,
        )
        self._rotate(folder)
        self._saved_at, self._seconds_saved = self.iteration, self._seconds
        self._deadline.record_checkpoint(time.perf_counter() - start)
        return saved

    def close(self) -> None:
        """Saves what is not saved yet and frees everything. Safe to call twice."""
        if self._closed:
            return
        try:
            if self._saved_at != self.iteration and self._needs_checkpoint(ending=True):
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
        checkpoints = self.run.checkpoints
        if checkpoints:
            self._restore(checkpoints[-1])
        else:
            self._loop.begin(0)
        self.run.cut_metrics(self.iteration)
        self._loggers = open_loggers(self.experiment, self.run)
        start = f"from iteration {self.iteration}, {self.frames} frames" if checkpoints else "from the start"
        self.run.log_event(f"training {start}")
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
            raise CheckpointError(f"{checkpoint.path} lacks {error}; it is not a checkpoint of a training") from error

    def _iterate(self) -> Report:
        start = time.perf_counter()
        advance = self._loop.advance()
        self.iteration += 1
        self.frames += self.experiment.iteration_frames
        self._rate = self.experiment.iteration_frames / advance.seconds
        evaluation = self._evaluate(self._seconds + advance.seconds)
        self._iteration_s = time.perf_counter() - start
        self._seconds += self._iteration_s
        report = self._report(advance, evaluation)
        self.run.append_metrics(report.to_json())
        for logger in self._loggers:
            logger.log(report)
        self._check_end()
        if self._needs_checkpoint(ending=self.state != "running"):
            self.save()
        if self.state != "running" or time.monotonic() - self._status_at >= STATUS_INTERVAL_S:
            self._lock.touch()
            self._write_status()
        for callback in self._callbacks:
            callback.after_iteration(self)
        return report

    @property
    def _is_scheduled(self) -> bool:
        """Whether an undisturbed training has a checkpoint here too."""
        return self.iteration % self.experiment.checkpoint_every == 0 or self.state == "complete"

    def _needs_checkpoint(self, *, ending: bool) -> bool:
        """Whether a checkpoint is due: on schedule, and when a training ends.

        A checkpoint resets an environment that cannot be saved, which changes what follows. A batch job must end in the
        same bits however often it is stopped. So it leaves a few minutes' work unsaved at a stop and repeats it later.
        """
        if self._is_scheduled or not ending or not self._in_job or self._loop.env.state_dict() is not None:
            return self._is_scheduled or ending
        if self._seconds - self._seconds_saved < MAX_REPEATED_S:
            consequence = f"the iterations after {self._saved_at} are repeated"
        else:
            consequence = f"it is reset at iteration {self.iteration}, which changes what follows"
        if self._left_unsaved != self.iteration:
            self.run.log_event(f"the environment cannot be saved: {consequence}")
        self._left_unsaved = self.iteration
        return self._seconds - self._seconds_saved >= MAX_REPEATED_S

    def _rotate(self, folder: Path) -> None:
        """Deletes old checkpoints; in a batch job those made at stops, once the next scheduled one exists."""
        if not self._in_job:
            rotate_checkpoints(folder, self.experiment.keep_checkpoints)
        elif self._is_scheduled:
            drop_stop_checkpoints(folder, self.iteration)
            rotate_checkpoints(folder, self.experiment.keep_checkpoints)

    def _report(self, advance: Advance, evaluation: dict[str, float]) -> Report:
        episodes = advance.episodes
        return Report(
            iteration=self.iteration,
            frames=self.frames,
            seconds=self._seconds,
            episodes=len(episodes),
            returns=episodes.group_means(),
            agent_returns=episodes.agent_means(self._loop.env.spec),
            recent_return=self._loop.episodes.recent_score,
            length=float(episodes.lengths.mean()) if len(episodes) else None,
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
        table, evaluation = self._evaluator.evaluate(self.policies)
        self._evaluation_score = evaluation.score
        self.run.append_evaluation(
            {"iteration": self.iteration, "frames": self.frames, "seconds": seconds, "returns": table.to_json()}
        )
        return evaluation.return_mean

    def _check_end(self) -> None:
        if self.state != "running":
            return
        stop = self.run.path / STOP
        if self.frames >= self.experiment.frames:
            self.state = "complete"
        elif self._target_reached():
            self.state = "complete"
            self.run.log_event(f"target return {self.experiment.target_return} reached: {self.score}")
        elif stop.exists() or self._stop_reason is not None:
            self._stop(self._stop_reason or _read_reason(stop) or "the file STOP")
            stop.unlink(missing_ok=True)
        elif (reason := self._deadline.reason_to_stop(self._iteration_s)) is not None:
            self.allocation_ends = True
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        self.run.log_event(f"stopping: {reason}")
        self.stopped_because = reason
        self.state = "stopped"

    def _target_reached(self) -> bool:
        target, score = self.experiment.target_return, self.score
        if target is None or score is None or score < target:
            return False
        return self.experiment.evaluate_every > 0 or self._loop.episodes.recent_episodes >= MIN_EPISODES

    def _fail(self, error: BaseException) -> None:
        """Logs the error and frees everything; the last checkpoint stays. Nothing here may hide `error`."""
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
            for callback in self._callbacks:
                callback.end(self)
            for resource in (*self._loggers, self._env, self._evaluator):
                if resource is not None:
                    resource.close()
        finally:
            self._lock.release()

    def _write_status(self, state: State | None = None, **facts: Any) -> None:
        self._status_at = time.monotonic()
        frames_left = max(0, self.experiment.frames - self.frames)
        self.run.write_status(
            state or self.state,
            iteration=self.iteration,
            frames=self.frames,
            frames_total=self.experiment.frames,
            frames_per_second=self._rate,
            eta_s=frames_left / self._rate if self._rate and self.state == "running" else None,
            **({"reason": self.stopped_because} if self.stopped_because else {}),
            **facts,
        )


def _read_reason(stop: Path) -> str:
    """The reason written into the file STOP; empty if there is none."""
    try:
        return stop.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
