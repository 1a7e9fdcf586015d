"""Trainer: an iterator that collects, learns and reports. A training run is paused by not calling it.

On a CPU, N + M iterations and a resume after N give the same bits: a checkpoint holds everything that the next
iteration depends on. An environment that cannot be saved is reset with a known seed at each checkpoint, in the run that
continues as well.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Protocol

from marlnb.config import EnvConfig
from marlnb.envs.device import check_device
from marlnb.envs.external.interface import EnvInterrupted, ServedEnvs, interrupt, is_served, publish
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.training.checkpoint_saver import CheckpointSaver
from marlnb.training.collect.threads import torch_threads
from marlnb.training.ending import End, Ending
from marlnb.training.limits import Trained, check_length, reached_limit
from marlnb.training.loop import Advance, LoopBuilder, build_loop, report_of
from marlnb.training.malloc import keep_freed_memory
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.policies.evaluator import Evaluator
from marlnb.training.reporting.loggers import TorchRLLogger, check_loggers, open_loggers
from marlnb.training.reporting.profiler import PhaseTimes, TrainingProfiler
from marlnb.training.reporting.report import Report
from marlnb.training.reporting.status_writer import StatusWriter
from marlnb.training.returns import LastEvaluation, TrainingReturns
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.files import EVALUATION, LOCK, STOP
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.states import RunState
from marlnb.training.runs.status import EXPLORING, GREEDY
from marlnb.training.shared_return import exploring_returns, shared_return
from marlnb.training.stopping import interrupts_after_iteration, stopping_on_file

INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class TrainingCallback(Protocol):
    """Called between the iterations of a training run: `train(..., callbacks=[...])`. It must not change the training.

    If it raises, the training ends as failed; the last checkpoint is complete. A callback that plays with the policies
    does so in an environment of `Trainer.build_env`: a request to stop ends its call there if it waits for simulators.
    """

    def begin(self, trainer: Trainer) -> None:
        """Called before the first iteration, after a start or a resume: `trainer.iteration` iterations are done."""

    def after_iteration(self, trainer: Trainer) -> None:
        """Called after each iteration, once its checkpoint, if it has one, is saved."""

    def end(self, trainer: Trainer) -> None:
        """Called once when the training ends for any reason; `trainer.state` says which."""


class Trainer:
    """Trains an experiment in a run folder, from the folder's last checkpoint on.

    Each `next` is one iteration and returns a Report. The iterations end at a limit of the experiment (frames and
    others), at its target return, after `ask_to_stop`, or in time before the allocation ends. Use it in a `with` block,
    or call `close`: that saves what was learned, frees the environment and releases the folder's lock.

    Args:
        build: makes the loop; that of `JoinedTrainings` for a training run that advances with others.

    Attributes:
        experiment: what is trained.
        run: the folder.
        state: "running", then "complete", "stopped" or "failed".
        iteration: iterations since the run started.
        frames: frames since the run started.
        seconds: of training since the run started.
        agent_steps: steps of single agents since the run started, counted where they acted.
        end: why it ended; None while it trains, after an error, and where it was closed before its end.
        loop: environment, learners and everything else that the next iteration depends on.
        phases: where the time of this session went.
        profiler: with the experiment's option `profile`, what measures it; else None.

    Raises:
        RunError: another process trains in the folder, or the environment has changed.
        ConfigError, EnvError: the experiment cannot be run.
        CheckpointError: the last checkpoint does not fit the experiment, or all are damaged or gone.
        TrustError: the experiment was read from a folder that names code which the user does not trust.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: Run,
        callbacks: Sequence[TrainingCallback] = (),
        build: LoopBuilder = build_loop,
    ) -> None:
        experiment = experiment.loaded()
        check_loggers(experiment.loggers)
        experiment.check_target_group()
        device = check_device(experiment.device)
        keep_freed_memory()
        self.experiment, self.run = experiment, run
        self.state: RunState = "running"
        self.iteration = self.frames = self.agent_steps = 0
        self.seconds = self._iteration_s = 0.0
        self._status = StatusWriter(experiment, run)
        self._exploring_returns: dict[str, float] = {}
        self._returns, self._ending = TrainingReturns(experiment), Ending(experiment, run.path)
        self.end: End | None = None
        self._ended_by = ""
        self._closed = self._is_restored = False
        self.phases = PhaseTimes()
        self.profiler = TrainingProfiler(run.path, experiment.device) if experiment.profile else None
        self._lock, self._resources = RunLock(run.path / LOCK), ExitStack()
        self._resources.callback(self._lock.release)  # after everything else
        self._resources.callback(self._remove_request)
        self._served = ServedEnvs()
        evaluator = Evaluator(experiment, run.path / EVALUATION, self._served)
        self._evaluator = self._resources.enter_context(closing(evaluator))
        self._loggers: list[TorchRLLogger] = []
        self._callbacks: list[TrainingCallback] = []
        try:
            env = self._resources.enter_context(build_env(experiment, experiment.n_envs, device=experiment.device))
            run.write_spec(env.spec)
            publish(env, run.path)
            with torch_threads(experiment.threads):  # the bits of initial weights depend on it
                self.loop = build(experiment, env, device, run.path)
            self._resources.callback(self.loop.close)
            check_length(experiment, env.spec)
            if experiment.target_group is not None:
                env.spec.group(experiment.target_group)
            self._saver = CheckpointSaver(experiment, run, self.loop, self._returns)
            self._begin()
            if is_served(env):
                self._resources.enter_context(stopping_on_file(run.path, self.ask_to_stop))
            for callback in callbacks:
                self._callbacks.append(callback)
                with self._ending_at_stop(callback):
                    callback.begin(self)
            if self.profiler is not None:
                self.profiler.begin(self.iteration)
        except BaseException as error:
            self.fail(error, "while it started")
            raise

    @staticmethod
    def resume(run: Run) -> Trainer:
        """Continues from the run's last checkpoint, or from the start if none was saved yet."""
        return Trainer(run.experiment, run)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The current policies by group."""
        return self.loop.policies

    @property
    def origin(self) -> Origin:
        """Which weights `policies` have now: those of this iteration's checkpoint if it has one, else their hash."""
        return self.saved_origin or Origin(self.iteration, weights_sha256(self.policies))

    @property
    def saved_origin(self) -> Origin | None:
        """The checkpoint of this iteration, if it has one."""
        return self._saver.origin_of(self.iteration)

    @property
    def trained(self) -> Trained:
        """How much has been trained, all sessions together."""
        return Trained(self.iteration, self.frames, self.seconds, self.agent_steps)

    @property
    def stopped_because(self) -> str:
        """Why it was stopped, saved; empty if it was not."""
        return self.end.reason if self.end is not None and self.end.state == "stopped" else ""

    @property
    def evaluation_returns(self) -> Mapping[str, float]:
        """By group, the mean return of the last evaluation; empty before the first."""
        return self._returns.evaluation.returns

    @property
    def returns(self) -> Mapping[str, float]:
        """By group, the mean return of one agent, of the last evaluation or else of recent episodes."""
        return self._returns.latest(self.loop.episodes)

    @property
    def score(self) -> float | None:
        """The return that all groups share; None before any episode ended, and where they are rewarded differently."""
        return shared_return(self.returns)

    def __iter__(self) -> Iterator[Report]:
        return self

    def __next__(self) -> Report:
        if not self.continues():
            raise StopIteration
        return self.iterate()

    def continues(self) -> bool:
        """Whether another iteration follows; if none does, closes the training.

        Raises:
            RunError: it has failed, was interrupted within an iteration, or was closed before its end.
        """
        if self.state == "failed":
            raise RunError(f"this run has failed; resume {self.run.shown_path}: its last checkpoint is complete")
        if self._closed and self.state == "stopped" and not self.stopped_because:
            raise RunError(f"this training run was closed; resume {self.run.shown_path} with Trainer.resume(run)")
        self._check_end()
        if self.state != "running":
            self.close()
        return self.state == "running"

    def iterate(self) -> Report:
        """One iteration, of a training run that `continues`.

        Raises:
            KeyboardInterrupt: after the iteration, so that `close` saves it; at a second interrupt at once.
        """
        with interrupts_after_iteration(self._end_waiting):
            try:
                with torch_threads(self.experiment.threads), self._saver.saying_what_is_saved():
                    return self._iterate()
            except BaseException as error:
                self.fail(error)
                raise

    def ask_to_stop(self, reason: str = "on request") -> None:
        """The current iteration is finished and saved, then the training ends. Safe in a signal handler."""
        self._ending.request = reason
        interrupt(self.loop.env)
        self._served.cancel()

    def _end_waiting(self) -> None:
        """At an interrupt: a training run that waits for simulators stops; others can be continued."""
        if is_served(self.loop.env):
            self.ask_to_stop("SIGINT")

    @property
    def stopping(self) -> bool:
        """Whether it will stop after this iteration: by a signal, `ask_to_stop`, or the end of its allocation."""
        return self._ending.is_asked_for(self._iteration_s)

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        """The run's environment, for a callback that plays; or `env` with the same groups. The caller closes it."""
        built = self.run.build_env(n_envs, device=device, env=env)
        self._served.add(built)
        return built

    def report_state(self, state: RunState) -> None:
        """Writes to the run's status that the training is running or paused; also a sign of life."""
        self._lock.touch()
        self._write_status(state)

    def save(self) -> Checkpoint:
        """Saves a checkpoint. An environment that cannot be saved is reset, as at every checkpoint.

        Raises:
            CheckpointWriteError: it cannot be written; earlier checkpoints are complete.
        """
        with self.phases.timed("checkpoint"):
            saved = self._saver.save(self.trained, self.state)
        self._ending.deadline.record_checkpoint(self._saver.save_s)
        return saved

    def close(self) -> None:
        """Saves what is not saved yet and frees everything. Safe to call twice."""
        if self._closed:
            return
        try:
            if self._saver.iteration != self.iteration and self._saver.is_due(self.trained, self.state, ending=True):
                self.save()
            if self.state == "running":
                self.state = "stopped"
            self.run.log_event(f"{self.state} at iteration {self.iteration}, {self.frames} frames")
            self._release()
        except BaseException as error:
            if not self._closed:
                self.fail(error)
            raise

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Saves, as `close`, also after an exception of the block, which is logged and is the reason in the status."""
        if error is not None and self.state == "running":
            self._ended_by = _described(error)
            with suppress(OSError):  # a full disk
                self._log_error(f"ended after iteration {self.iteration}", error)
        self.close()

    def _begin(self) -> None:
        self._saver.tidy_up()
        restored = self._saver.restore_newest()
        if restored is None:
            self.loop.begin(0)
        else:
            self.iteration, self.frames = restored.iterations, restored.frames
            self.seconds, self.agent_steps = restored.seconds, restored.agent_steps
        self._is_restored = True
        row = self.run.begin(self.iteration)
        self._exploring_returns = exploring_returns(row) or self.loop.episodes.recent_returns
        for logger in open_loggers(self.experiment, self.run, self.frames):
            self._loggers.append(self._resources.enter_context(closing(logger)))
        start = f"iteration {self.iteration}, {self.frames} frames" if restored else "the start"
        self.run.log_event(f"training from {start}")
        if ignored := self._ending.deadline.ignored:
            self.run.log_event(ignored)
        self._write_status()

    def _iterate(self) -> Report:
        start = time.perf_counter()
        advance = self.loop.advance()
        self._returns.add(advance.episodes)
        self.iteration += 1
        self.frames += self.experiment.iteration_frames + advance.extra_frames
        self.agent_steps += advance.agent_steps
        self._status.rate = self.experiment.iteration_frames / advance.seconds
        for phase in ("stepping", "acting", "learning"):
            self.phases.add(phase, getattr(advance, f"{phase}_s"))
        self._iteration_s = max(time.perf_counter() - start, advance.joined_s)
        self.seconds += self._iteration_s
        evaluation_start = time.perf_counter()
        if evaluation := self._evaluate(advance):
            evaluation_s = time.perf_counter() - evaluation_start
            self.seconds += evaluation_s
            self._iteration_s += evaluation_s
        report = report_of(advance, self.loop, self.trained, self._status.rate, evaluation)
        self._exploring_returns = report.exploring_returns
        self.run.append_metrics(report.to_json())
        for logger in self._loggers:
            logger.log(report)
        self._check_end()
        if self._saver.is_due(self.trained, self.state, ending=self.state != "running"):
            self.save()
        if self.state != "running" or self._status.is_due:
            self.report_state(self.state)
        for callback in self._callbacks:
            with self._ending_at_stop(callback):
                callback.after_iteration(self)
        if self.profiler is not None:
            self.profiler.after_iteration(self.iteration, is_last=self.state != "running")
        return report

    @contextmanager
    def _ending_at_stop(self, callback: TrainingCallback) -> Iterator[None]:
        try:
            yield
        except EnvInterrupted:  # the training stops and is saved
            self.run.log_event(f"{type(callback).__name__} was interrupted")

    def _evaluate(self, advance: Advance) -> dict[str, float]:
        if self.experiment.evolution is not None:  # a population evaluates its members itself
            if advance.evaluation:
                self._returns.evaluation = LastEvaluation(self.iteration, advance.evaluation)
            return advance.evaluation
        last = bool(reached_limit(self.experiment, self.trained))
        if not self._evaluator.is_due(self.iteration, last, self._reached_target is not None):
            return {}
        try:
            with self.phases.timed("evaluation"):
                evaluation = self._evaluator.evaluate(self.policies)
        except EnvInterrupted:  # the training stops and is saved without it
            self.run.log_event("the evaluation was interrupted")
            return {}
        self._returns.evaluation = LastEvaluation(self.iteration, evaluation.return_mean)
        facts = {"iteration": self.iteration, "frames": self.frames, "seconds": self.seconds}
        self.run.append_evaluation({**facts, "returns": evaluation.table.to_json()})
        return evaluation.return_mean

    def _check_end(self) -> None:
        if self.state != "running":
            return
        may_end, reached = self.loop.may_end, self._reached_target
        self.end = self._ending.find(self.trained, self._iteration_s, reached, frames_may_end=may_end)
        if self.end is None:
            return
        self.state = self.end.state
        if self.state == "stopped":
            self._served.cancel()  # callbacks do not wait for simulators any more
        if self.end.reason:
            self.run.log_event(f"stopping: {self.end.reason}" if self.state == "stopped" else self.end.reason)

    @property
    def _reached_target(self) -> float | None:
        return self._returns.reached_target(self.loop.episodes)

    def _remove_request(self) -> None:
        """A STOP that came at the end is not for the next session."""
        with suppress(OSError):
            (self.run.path / STOP).unlink(missing_ok=True)

    def fail(self, error: BaseException, when: str = "") -> None:
        """Logs the error and frees everything; the last checkpoint stays. Nothing here may hide `error`.

        Args:
            when: for the log; empty: in the next iteration.
        """
        self.state = "stopped" if isinstance(error, INTERRUPTS) else "failed"
        with ExitStack() as last, suppress(OSError):  # a full disk, as `error` says
            last.callback(self._release, error=_described(error))
            self._log_error(f"{self.state} {when or f'in iteration {self.iteration + 1}'}", error)

    def _log_error(self, text: str, error: BaseException) -> None:
        self.run.log_event(f"{text}: {error!r}")
        if not isinstance(error, INTERRUPTS):
            self.run.log_event("".join(traceback.format_exception(error)).rstrip())

    def _release(self, **facts: Any) -> None:
        with self._resources:  # also if an interrupt comes now: a notebook's traceback would keep the processes
            self._closed = True
            with suppress(OSError, RunError):  # a full disk; an earlier status that cannot be read
                self._write_status(**facts)
            for callback in self._callbacks:
                callback.end(self)
            if self.profiler is not None:
                self.profiler.end(self.iteration, self.phases)

    def _write_status(self, state: RunState | None = None, **facts: Any) -> None:
        trained = self.trained if self._is_restored else None
        if trained is not None:
            facts["checkpoint"] = self._saver.iteration
        scores = {EXPLORING: self._exploring_returns, GREEDY: self.evaluation_returns}
        reason = self.stopped_because or self._ended_by
        self._status.write(state or self.state, trained, scores, reason=reason, **facts)


def _described(error: BaseException) -> str:
    """`ValueError: its message`, or `KeyboardInterrupt`."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
