"""Train several runs to their ends: one after the other in this process, or in parallel processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Literal, Protocol

from marlnb.allocations import usable_cores
from marlnb.batch.job.signals import interrupt_on_signals
from marlnb.batch.local.machine import core_numbers
from marlnb.batch.trainings.progress_display import PlannedTraining, TrainingsProgress
from marlnb.disk import writing
from marlnb.errors import MarlnbError
from marlnb.training.report import Report
from marlnb.training.runs.files import is_run
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import trust_training
from marlnb.training.train import check_same, resume

LOG = "output.log"
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
    resume(run, progress=False, on_report=on_report)
    return "complete" if run.status()["state"] == "complete" else "stopped"


def check_runs(folder: Path, runs: Sequence[PlannedTraining]) -> None:
    """Checks the folders of existing runs.

    Raises:
        RunError: a folder holds a run of another experiment.
    """
    for run in runs:
        if is_run(folder / run.folder):
            check_same(Run.open(folder / run.folder), run.experiment)


def run_in_turn(
    folder: Path, runs: Sequence[PlannedTraining], display: TrainingsProgress, finish: Finish = finish_training
) -> list[Outcome]:
    """Runs one after the other in this process. A stop ends all; a failure ends only its run."""
    outcomes: list[Outcome] = []
    with interrupt_on_signals():
        for planned in runs:
            display.start(planned)
            try:
                show = partial(_show, display, planned)
                outcome = Outcome(planned, finish(open_or_create(folder, planned), [show]))
            except KeyboardInterrupt:
                outcome = Outcome(planned, "stopped")
            except Exception as error:  # an environment may raise anything; the other runs continue
                name = "" if isinstance(error, MarlnbError) else f"{type(error).__name__}: "
                outcome = Outcome(planned, "failed", f"{name}{error}")
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

    An interrupt asks each process to save and stop, and waits for it; a second one ends them at once.
    """
    waiting, slots = deque(runs), deque(range(jobs))
    running: list[_Job] = []
    outcomes: list[Outcome] = []
    with interrupt_on_signals():
        try:
            while waiting or running:
                while waiting and slots:
                    running.append(_Job.start(folder, waiting.popleft(), slots.popleft(), jobs, finish))
                    display.start(running[-1].planned)
                time.sleep(POLL_S)
                outcomes += _collect(running, slots, display)
        except KeyboardInterrupt:
            display.say("stopping: each run saves first; interrupt again to end at once")
            outcomes += _stop(running, slots, display)
    return outcomes


@dataclass
class _Job:
    """A run in its own process."""

    planned: PlannedTraining
    run: Run
    process: subprocess.Popen[bytes]
    slot: int
    log: IO[bytes] = field(repr=False)

    @staticmethod
    def start(folder: Path, planned: PlannedTraining, slot: int, jobs: int, finish: Finish) -> _Job:
        run = open_or_create(folder, planned)
        cores = core_numbers()
        share = cores[slot::jobs] if len(cores) >= jobs else []
        words = [sys.executable, "-m", "marlnb.batch.trainings.worker", str(run.path), ",".join(map(str, share))]
        words.append(f"{finish.__module__}:{finish.__qualname__}")
        threads = str(max(1, usable_cores() // jobs))
        env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ}
        with writing(run.path / LOG):
            log = open(run.path / LOG, "ab")  # noqa: SIM115
        return _Job(planned, run, subprocess.Popen(words, stdout=log, stderr=log, env=env), slot, log)

    def outcome(self) -> Outcome:
        code = self.process.wait()
        self.log.close()
        if code == 0:
            return Outcome(self.planned, "complete")
        if code in (STOPPED, -signal.SIGINT, -signal.SIGTERM):
            return Outcome(self.planned, "stopped")
        if code < 0:
            return Outcome(self.planned, "failed", f"killed by {signal.Signals(-code).name}")
        lines = (self.run.path / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return Outcome(self.planned, "failed", f"{lines[-1] if lines else f'exit code {code}'} (see {self.log.name})")


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


def _show(display: TrainingsProgress, planned: PlannedTraining, report: Report) -> None:
    display.update(planned, report.frames)


def open_or_create(folder: Path, planned: PlannedTraining) -> Run:
    path = folder / planned.folder
    if not is_run(path):
        return Run.create(path, planned.experiment)
    trust_training(planned.experiment, path)  # where the record cannot be written, it is trusted again
    return Run.open(path)
