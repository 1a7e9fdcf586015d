"""Runs the training runs that a search needs, one after the other, in this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from math import inf

from benchmarks.drivers.pace import cpu_seconds
from benchmarks.tune.curve import learning_curve, warm_up
from benchmarks.tune.halving import SearchTask, Trial, next_trial, winner
from benchmarks.tune.journal import Entry, Journal
from benchmarks.tune.scoring import objective
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment

SHOWN_SEEDS = (100, 101, 102)  # no rung uses them


def search(tasks: Sequence[SearchTask], journal: Journal, *, n_shown: int, end: float = inf) -> bool:
    """Runs what the tasks still need, and journals it.

    Args:
        tasks: one after the other.
        journal: what is complete.
        n_shown: training runs of each winner with seeds that the search does not use.
        end: no training run starts after this time, in seconds of `time.monotonic`.
    Returns:
        whether nothing is missing any more.
    """
    for task in tasks:
        is_warm = False
        for trial in missing_trials(task, journal, n_shown):
            if time.monotonic() >= end:
                return False
            experiment = compose(task, trial)
            if not is_warm:
                warm_up(experiment)
                is_warm = True
            entry = run_trial(task, trial, experiment)
            journal.append(entry)
            print(describe(entry), file=sys.stderr, flush=True)
    return True


def missing_trials(task: SearchTask, journal: Journal, n_shown: int) -> Iterator[Trial]:
    """The training runs of the search, then those of the winner. Journal each one before you take the next."""
    while (trial := next_trial(task, journal.results())) is not None:
        yield trial
    options = winner(task, journal.results())
    assert options is not None
    for seed in SHOWN_SEEDS[:n_shown]:
        shown = Trial(task.name, options, seed, task.rungs[-1].budget_s)
        if shown not in journal.results():
            yield shown


def compose(task: SearchTask, trial: Trial) -> Experiment:
    """Without the tuned settings, so that a trial does not depend on what they are today."""
    parts = (f"env={task.env}", f"algorithm={task.algorithm}", "tuned=false")
    return Experiment.compose(*parts, *task.fixed, f"seed={trial.seed}", *trial.options)


def run_trial(task: SearchTask, trial: Trial, experiment: Experiment) -> Entry:
    """Trains until the budget is spent. A training run that fails has no score."""
    start_s, points, error = cpu_seconds(), [], ""
    marks_s = [*(mark for mark in task.marks_s if mark < trial.budget_s), trial.budget_s]
    try:
        for point in learning_curve(experiment, marks_s, clock="cpu", episodes=task.episodes):
            points.append(point)
    except MarlnbError as failure:
        error = str(failure)
    return Entry(
        trial=trial,
        points=tuple(points),
        score=None if error else objective(task.env, points[-1].greedy),
        total_cpu_s=round(cpu_seconds() - start_s, 1),
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        error=error,
    )


def describe(entry: Entry) -> str:
    """One line: the scores at the marks, greedy, and the settings."""
    trial = entry.trial
    curve = ", ".join(f"{point.seconds:.0f} s: {_text(point.greedy)}" for point in entry.points)
    return f"{trial.cell}, seed {trial.seed}: {entry.error or curve}  [{' '.join(trial.options) or 'defaults'}]"


def _text(scores: dict[str, float]) -> str:
    values = set(scores.values())
    return f"{values.pop():.4g}" if len(values) == 1 else " ".join(f"{k} {v:.4g}" for k, v in scores.items())
