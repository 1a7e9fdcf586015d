"""Train several runs together: those that differ in their seed only form one batch, in this process or in several."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from marlnb.allocations import usable_cores
from marlnb.batch.job.signals import interrupt_on_signals
from marlnb.batch.local.machine import core_numbers
from marlnb.batch.trainings.launch import LOG, POLL_S, Outcome, open_or_create
from marlnb.batch.trainings.progress_display import PlannedTraining, TrainingsProgress
from marlnb.training.joined import check_joined
from marlnb.training.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.train_together import train_together


def groups_together(runs: Sequence[PlannedTraining]) -> list[list[PlannedTraining]]:
    """The runs that differ in their seed only, in their order.

    Raises:
        ConfigError: some of them cannot advance together.
    """
    groups: list[list[PlannedTraining]] = []
    for run in runs:
        same = (group for group in groups if replace(group[0].experiment, seed=run.experiment.seed) == run.experiment)
        group = next(same, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    for group in groups:
        check_joined([run.experiment for run in group])
    return groups


def run_together(
    folder: Path, runs: Sequence[PlannedTraining], display: TrainingsProgress, *, jobs: int
) -> list[Outcome]:
    """Trains each batch of runs, in `jobs` processes with their share of the cores; 1: in this process.

    A stop ends all, saved; a failure ends only its run.
    """
    outcomes: list[Outcome] = []
    with interrupt_on_signals():
        for group in groups_together(runs):
            for planned in group:
                display.start(planned)
            opened = [open_or_create(folder, planned) for planned in group]
            train = _train_here if jobs == 1 else _train_in_processes
            with suppress(KeyboardInterrupt):  # the second one, which ends at once
                train(group, opened, display, jobs)
            of_group = [_outcome(planned, run) for planned, run in zip(group, opened)]
            for outcome in of_group:
                display.end(outcome.run, str(outcome))
            outcomes += of_group
            if any(outcome.end == "stopped" for outcome in of_group):
                break
    return outcomes


def _train_here(group: Sequence[PlannedTraining], opened: Sequence[Run], display: TrainingsProgress, jobs: int) -> None:
    planned_of = {run.path: planned for planned, run in zip(group, opened)}

    def show(run: Run, report: Report) -> None:
        display.update(planned_of[run.path], report.frames)

    train_together(opened, [show])


def _train_in_processes(
    group: Sequence[PlannedTraining], opened: Sequence[Run], display: TrainingsProgress, jobs: int
) -> None:
    """Each process trains an equal part of the runs; its output is in `output.log` of its first run."""
    n_jobs = min(jobs, len(opened))
    bounds = [len(opened) * k // n_jobs for k in range(n_jobs + 1)]
    processes = [
        _start(opened[start:stop], slot, n_jobs) for slot, (start, stop) in enumerate(itertools.pairwise(bounds))
    ]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(POLL_S)
            for planned, run in zip(group, opened):
                display.update(planned, int(run.status().get("frames", 0)))
    except KeyboardInterrupt:
        display.say("stopping: each run saves first; interrupt again to end at once")
        for process in processes:
            process.send_signal(signal.SIGTERM)
        _wait(processes)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    try:
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.wait()


def _start(runs: Sequence[Run], slot: int, n_jobs: int) -> subprocess.Popen[bytes]:
    """A process that trains some runs together."""
    cores = core_numbers()
    share = cores[slot::n_jobs] if len(cores) >= n_jobs else []
    words = [sys.executable, "-m", "marlnb.batch.trainings.worker_together", ",".join(map(str, share))]
    words += [str(run.path) for run in runs]
    threads = str(max(1, usable_cores() // n_jobs))
    env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ}
    with open(runs[0].path / LOG, "ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env=env)


def _outcome(planned: PlannedTraining, run: Run) -> Outcome:
    status = run.status()
    if status["state"] == "complete":
        return Outcome(planned, "complete")
    if status["state"] == "stopped":
        return Outcome(planned, "stopped")
    return Outcome(planned, "failed", str(status.get("error", f"{status['state']}; see {LOG} in the runs' folders")))
