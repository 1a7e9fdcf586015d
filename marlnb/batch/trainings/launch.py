"""Train several runs to their ends: one after the other in this process, or in parallel processes.

The process that plans and starts them does not import torch, unless it trains them itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from marlnb.allocations import usable_cores
from marlnb.batch.job.signals import interrupt_on_signals
from marlnb.batch.local.machine import VISIBLE_GPUS, core_numbers, gpu_names
from marlnb.batch.trainings.progress_display import PlannedTraining, TrainingsProgress
from marlnb.disk import open_log
from marlnb.errors import MarlnbError
from marlnb.training.reporting.report import Report
from marlnb.training.runs.comparable import check_same
from marlnb.training.runs.files import LOCK, is_run
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.run_folder import RunFolder, trust_training

if TYPE_CHECKING:
    from marlnb.training.runs.run import Run

LOG = "output.log"
WORKER = "marlnb.batch.trainings.worker"
POLL_S = 0.2
STOPPED = 130

End = Literal["complete", "failed", "stopped"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        run: the run.
        end: "complete", "failed" or "stopped".
        message: why it failed.
    """

    run: PlannedTraining
    end: End
    message: str = ""

    def __str__(self) -> str:
        return f"{self.end}: {self.message}" if self.message else self.end


class Finish(Protocol):
    """A function of a module that trains a run to its end, in this process or in another one."""

    __module__: str
    __qualname__: str

    def __call__(self, run: Run, on_report: Sequence[Callable[[Report], None]] = ()) -> End: ...


def finish_training(run: Run, on_report: Sequence[Callable[[Report], None]] = ()) -> End:
    """Trains a run to its end, from its last checkpoint."""
    from marlnb.training.train import resume

    resume(run, progress=False, on_report=on_report)
    return "complete" if run.status()["state"] == "complete" else "stopped"


def check_runs(folder: Path, runs: Sequence[PlannedTraining]) -> None:
    """Checks the folders of existing runs.

    Raises:
        RunError: a folder holds a run of another experiment.
    """
    for run in runs:
        if is_run(folder / run.folder):
            check_same(RunFolder.open(folder / run.folder), run.experiment)


def run_in_turn(
    folder: Path, runs: Sequence[PlannedTraining], display: TrainingsProgress, finish: Finish = finish_training
) -> list[Outcome]:
    """Runs one after the other in this process. A stop ends all; a failure ends only its run."""
    from marlnb.training.runs.run import Run

    outcomes: list[Outcome] = []
    with interrupt_on_signals():
        for planned in runs:
            display.start(planned)
            is_new = False
            try:
                path, is_new = open_or_create(folder, planned)
                outcome = Outcome(planned, finish(Run.open(path), [partial(_show, display, planned)]))
            except KeyboardInterrupt:
                outcome = Outcome(planned, "stopped")
            except Exception as error:  # an environment may raise anything; the other runs continue
                outcome = failure(planned, error)
            if is_new:
                discard_unstarted(path, outcome)
            display.end(planned, str(outcome))
            outcomes.append(outcome)
            if outcome.end == "stopped":
                break
    return outcomes


def run_side_by_side(
    folder: Path,
    runs: Sequence[PlannedTraining],
    display: TrainingsProgress,
    finish: Finish = finish_training,
    *,
    jobs: int,
) -> list[Outcome]:
    """Runs `jobs` processes in parallel, each with its share of the cores; their output is in `output.log` of the run.

    A run that cannot start has failed, and the others continue. An interrupt asks each process to save and stop, and
    waits for it; a second one ends them at once. An error of this process asks them too.
    """
    waiting, slots = deque(runs), deque(range(jobs))
    running: list[_Job] = []
    outcomes: list[Outcome] = []
    with interrupt_on_signals():
        try:
            while waiting or running:
                while waiting and slots:
                    planned, slot = waiting.popleft(), slots.popleft()
                    try:
                        running.append(_Job.start(folder, planned, slot, jobs, finish))
                    except (MarlnbError, OSError) as error:
                        slots.append(slot)
                        outcomes.append(failure(planned, error))
                        display.end(planned, str(outcomes[-1]))
                    else:
                        display.start(planned)
                time.sleep(POLL_S)
                outcomes += _collect(running, slots, display)
        except KeyboardInterrupt:
            display.say("stopping: each run saves first; interrupt again to end at once")
            outcomes += _stop(running, slots, display)
        except BaseException:
            for job in running:
                job.process.terminate()
            for job in running:
                job.process.wait()
            raise
    return outcomes


@dataclass
class _Job:
    """A run in its own process.

    Attributes:
        is_new: whether it was created for this process.
    """

    planned: PlannedTraining
    run: RunFolder
    is_new: bool
    process: subprocess.Popen[bytes]
    slot: int

    @staticmethod
    def start(folder: Path, planned: PlannedTraining, slot: int, jobs: int, finish: Finish) -> _Job:
        path, is_new = open_or_create(folder, planned)
        run = RunFolder.open(path)
        words = [f"{finish.__module__}:{finish.__qualname__}", str(run.path)]
        process = start_worker(WORKER, words, run.path / LOG, slot, jobs, planned.experiment.device)
        return _Job(planned, run, is_new, process, slot)

    def outcome(self) -> Outcome:
        """How the run of an ended process ended; one that could not start leaves its output only."""
        outcome = self._outcome()
        if self.is_new:
            discard_unstarted(self.run.path, outcome)
        return outcome

    def _outcome(self) -> Outcome:
        code, log = self.process.wait(), self.run.path / LOG
        if code == 0:
            return Outcome(self.planned, "complete")
        if code in (STOPPED, -signal.SIGINT, -signal.SIGTERM):
            return Outcome(self.planned, "stopped")
        if code < 0:
            return Outcome(self.planned, "failed", f"killed by {signal.Signals(-code).name}")
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return Outcome(self.planned, "failed", f"{lines[-1] if lines else f'exit code {code}'} (see {log})")


def start_worker(
    module: str, words: Sequence[str], log: Path, slot: int, jobs: int, device: str
) -> subprocess.Popen[bytes]:
    """A process that executes `python -m module CORES WORDS...`; CORES is its share, such as `0,2`, or empty for all.

    Args:
        log: its output is appended to this file.
        slot: its number among the processes that run at once, from 0.
        jobs: how many run at once.
        device: of the experiment. With `cuda`, processes share the GPUs in turn; `cuda:1` is that GPU.
    Raises:
        DiskError: the log cannot be written.
    """
    cores = core_numbers()
    share = cores[slot::jobs] if len(cores) >= jobs else []
    command = [sys.executable, "-m", module, ",".join(map(str, share)), *words]
    threads = str(max(1, usable_cores() // jobs))
    gpus = gpu_names(os.environ) if device == "cuda" else []
    gpu = {VISIBLE_GPUS: gpus[slot % len(gpus)]} if gpus else {}
    env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ, **gpu}
    with open_log(log) as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=env)


def _collect(running: list[_Job], slots: deque[int], display: TrainingsProgress) -> list[Outcome]:
    outcomes = []
    for job in list(running):
        display.update(job.planned, int(job.run.status().get("frames", 0)))
        if job.process.poll() is not None:
            running.remove(job)
            slots.append(job.slot)
            outcomes.append(job.outcome())
            display.end(job.planned, str(outcomes[-1]))
    return outcomes


def _stop(running: list[_Job], slots: deque[int], display: TrainingsProgress) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        for job in running:
            job.process.send_signal(signal.SIGTERM)
        while running:
            time.sleep(POLL_S)
            outcomes += _collect(running, slots, display)
    except KeyboardInterrupt:
        for job in running:
            job.process.kill()
            job.process.wait()
            outcomes.append(Outcome(job.planned, "stopped"))
    return outcomes


def failure(planned: PlannedTraining, error: Exception) -> Outcome:
    """Of a run that an error ended."""
    name = "" if isinstance(error, MarlnbError) else f"{type(error).__name__}: "
    return Outcome(planned, "failed", f"{name}{error}")


def _show(display: TrainingsProgress, planned: PlannedTraining, report: Report) -> None:
    display.update(planned, report.frames)


def open_or_create(folder: Path, planned: PlannedTraining) -> tuple[Path, bool]:
    """The folder of a run, and whether it is new: it is created if it is missing."""
    path = folder / planned.folder
    is_new = not is_run(path)
    if is_new:
        RunFolder.create(path, planned.experiment)
    else:
        trust_training(planned.experiment, path)  # where the record cannot be written, it is trusted again
    return path, is_new


def discard_unstarted(path: Path, outcome: Outcome) -> None:
    """Deletes a new run whose training could not start: the corrected experiment may use the same name."""
    if outcome.end != "failed" or is_locked(path / LOCK):
        return
    run = RunFolder.open(path)
    if "iteration" not in run.status():
        with suppress(OSError):  # a disk that is read-only by now
            run.discard_unstarted()
