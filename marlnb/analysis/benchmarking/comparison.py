"""Arrange many runs in matrices for statistics: what is compared, on which scale, and what is excluded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from marlnb.analysis.benchmarking.marl_eval import RETURN, EvaluatedRun, ScoreKind, check_unique
from marlnb.analysis.benchmarking.statistics import few_runs_warning, normalise
from marlnb.display.formatting import count, format_number
from marlnb.display.notebook_html import note_html, table_html
from marlnb.errors import AnalysisError, unknown

Scale = Literal["references", "min-max"]
SCALES = ("references", "min-max")
RANDOM = "random"
N_CURVE_POINTS = 50


@dataclass(frozen=True)
class TaskScale:
    """The scale of one task.

    Attributes:
        low: the return that counts as 0, in units of reward.
        high: the return that counts as 1.
        low_is: what the lower level is, for example random.
        high_is: what the upper level is.
    """

    low: float
    high: float
    low_is: str
    high_is: str

    def __str__(self) -> str:
        return f"0 = {self.low_is} ({format_number(self.low)}), 1 = {self.high_is} ({format_number(self.high)})"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of several algorithms on the tasks that all of them have.

    Attributes:
        tasks: names.
        scores: by algorithm, `[seed, task]`, normalised.
        curves: by algorithm, `[seed, task, point]`, normalised, at `shares`.
        shares: `[point]`, shares of each run's frames, from the first one at which all runs have been evaluated to 1.
        scales: by task, the scale of its scores.
        seeds: by algorithm, the seeds of the rows.
        excluded: what is not compared, and why, in words.
    """

    tasks: tuple[str, ...]
    scores: dict[str, np.ndarray]
    curves: dict[str, np.ndarray]
    shares: np.ndarray
    scales: dict[str, TaskScale]
    seeds: dict[str, tuple[int, ...]]
    excluded: tuple[str, ...]

    def __repr__(self) -> str:
        algorithms = ", ".join(f"{name} ({count(len(seeds), 'seed')})" for name, seeds in self.seeds.items())
        return f"<Comparison of {algorithms} on {', '.join(self.tasks)}>"

    def _repr_html_(self) -> str:
        rows = [(name, *(f"{mean:.3g}" for mean in scores.mean(axis=0))) for name, scores in self.scores.items()]
        intervals = "Mean normalised score over seeds; marlnb.analysis.benchmarking.statistics has intervals."
        note = note_html(" ".join((intervals, *(f"Warning: {text}." for text in self.warnings), self.describe_scale())))
        return table_html(("algorithm", *self.tasks), rows) + note

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust intervals."""
        return few_runs_warning(min(map(len, self.scores.values())))

    def describe_scale(self) -> str:
        """One line for each task: what counts as 0 and as 1."""
        return "\n".join(f"{task}: {self.scales[task]}" for task in self.tasks)


def compare_runs(
    runs: Sequence[EvaluatedRun],
    *,
    metric: str = RETURN,
    which: ScoreKind = "final",
    references: Mapping[str, Mapping[str, float]] | None = None,
    scale: Scale = "references",
) -> Comparison:
    """Scores of every algorithm on the tasks that all algorithms have, with the seeds that all of those tasks have.

    A task that lacks the metric, or on which no run differs from the lower level, is excluded first.

    Args:
        metric: `return`, which only tasks have whose groups all share their reward; or `<group>_return`.
        which: the score of a run: its `final` evaluation, its `best`, or the `absolute` one.
        references: by task, named levels in units of reward. 0 is the level `random`, and 1 the highest other level; if
            there is no other, 1 is the best score among the task's runs, of any seed; if none of these is better than
            random, 1 is random and 0 the worst of them. Each task's `TaskScale` says which.
        scale: references; or min-max, from the worst to the best score among the task's runs.
    Raises:
        AnalysisError: no common task with the metric and a scale, or no random level where one is needed.
    """
    if scale not in SCALES:
        raise AnalysisError(unknown("scale", scale, SCALES))
    check_unique(runs)
    by_run = {(run.algorithm, run.task, run.seed): run for run in runs}
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    every, without_runs = _common_tasks(by_run, algorithms)
    common, without_metric = tasks_with([run for run in runs if run.task in every], metric)
    scales = {
        task: _task_scale(
            task,
            np.array([run.score(metric, which) for run in runs if run.task == task]),
            (references or {}).get(task, {}),
            scale,
        )
        for task in common
    }
    tasks, without_scale = _with_a_scale(scales)
    seeds, without_tasks = _common_seeds(by_run, algorithms, tasks)

    def matrices(value: Callable[[EvaluatedRun], Any]) -> dict[str, np.ndarray]:
        """By algorithm, a value of each run `[seed, task, ...]`."""
        return {
            name: np.array([[value(by_run[name, task, seed]) for task in tasks] for seed in seeds[name]])
            for name in algorithms
        }

    raw = matrices(lambda run: run.score(metric, which))
    low, high = ([getattr(scales[task], end) for task in tasks] for end in ("low", "high"))
    compared = [by_run[name, task, seed] for name in algorithms for task in tasks for seed in seeds[name]]
    first = max(run.frames[0] / max(run.frames[-1], 1) for run in compared)
    shares = np.unique(np.linspace(first, 1, N_CURVE_POINTS))  # a single point if all was evaluated once, at the end
    curves = matrices(lambda run: np.interp(shares * run.frames[-1], run.frames, run.curve(metric)))
    return Comparison(
        tasks=tuple(tasks),
        scores={name: normalise(matrix, low, high, tasks) for name, matrix in raw.items()},
        curves={name: normalise(x.swapaxes(1, 2), low, high, tasks).swapaxes(1, 2) for name, x in curves.items()},
        shares=shares,
        scales={task: scales[task] for task in tasks},
        seeds=seeds,
        excluded=(*without_runs, *without_metric, *without_scale, *without_tasks),
    )


def tasks_with(runs: Sequence[EvaluatedRun], metric: str) -> tuple[list[str], list[str]]:
    """The tasks whose runs all have a metric, and why the others are excluded.

    Raises:
        AnalysisError: no task has it.
    """
    tasks = list(dict.fromkeys(run.task for run in runs))
    lacking = {run.task: run for run in reversed(runs) if not run.metrics.get(metric)}
    if lacking and len(lacking) == len(tasks):
        lacking[tasks[0]].curve(metric)  # raises, with the metrics that it has
    excluded = [f"{run}: no {metric}; it has {', '.join(run.metrics) or 'no evaluation'}" for run in lacking.values()]
    return [task for task in tasks if task not in lacking], excluded[::-1]


def task_curves(
    runs: Sequence[EvaluatedRun], task: str, metric: str = RETURN
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By algorithm, frames `[point]` and curves `[seed, point]` of one task, in units of reward.

    The points are those at which each seed's run was evaluated.

    Raises:
        AnalysisError: no run of the task, or seeds that were never evaluated at the same frames.
    """
    of_task = [run for run in runs if run.task == task]
    if not of_task:
        raise AnalysisError(unknown("task", task, sorted({run.task for run in runs})))
    curves = {}
    for name in dict.fromkeys(run.algorithm for run in of_task):
        group = [run for run in of_task if run.algorithm == name]
        frames = sorted(set.intersection(*(set(run.frames) for run in group)))
        if not frames:
            raise AnalysisError(f"{task}, {name}: its seeds were never evaluated at the same frames")
        values = [run.curve(metric)[np.isin(run.frames, frames)] for run in group]
        curves[name] = (np.array(frames), np.array(values))
    return curves


def _common_tasks(
    by_run: Mapping[tuple[str, str, int], EvaluatedRun], algorithms: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Tasks that all algorithms have, and why the others are excluded."""
    tasks_of = {name: {task for algorithm, task, _ in by_run if algorithm == name} for name in algorithms}
    all_tasks = list(dict.fromkeys(task for _, task, _ in by_run))
    tasks = [task for task in all_tasks if all(task in tasks_of[name] for name in algorithms)]
    if not tasks:
        available = "; ".join(f"{name}: {', '.join(sorted(tasks_of[name]))}" for name in algorithms)
        raise AnalysisError(f"no task has runs of every algorithm; available: {available or 'no runs'}")
    excluded = [
        f"{task}: no runs of {', '.join(name for name in algorithms if task not in tasks_of[name])}"
        for task in all_tasks
        if task not in tasks
    ]
    return tasks, excluded


def _common_seeds(
    by_run: Mapping[tuple[str, str, int], EvaluatedRun], algorithms: Sequence[str], tasks: Sequence[str]
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """By algorithm the seeds that all of these tasks have, and why the others are excluded."""
    seeds, excluded = {}, []
    for name in algorithms:
        available_seeds = [
            {seed for algorithm, at, seed in by_run if (algorithm, at) == (name, task)} for task in tasks
        ]
        seeds[name] = tuple(sorted(set.intersection(*available_seeds)))
        if not seeds[name]:
            raise AnalysisError(f"{name}: no seed has runs of all of {', '.join(tasks)}")
        partial = sorted(set.union(*available_seeds) - set(seeds[name]))
        if partial:
            excluded.append(f"{name}, seed {', '.join(map(str, partial))}: not of every task")
    return seeds, excluded


def _with_a_scale(scales: Mapping[str, TaskScale]) -> tuple[list[str], list[str]]:
    """The tasks whose upper level is above the lower one, and why the others are excluded."""
    excluded = {
        task: f"{task}: no scale, since {x.high_is} ({x.high:.4g}) is not above {x.low_is} ({x.low:.4g})"
        for task, x in scales.items()
        if not x.high > x.low
    }
    if len(excluded) == len(scales):
        raise AnalysisError(f"no task can be compared; {'; '.join(excluded.values())}")
    return [task for task in scales if task not in excluded], list(excluded.values())


def _task_scale(task: str, scores: np.ndarray, references: Mapping[str, float], scale: Scale) -> TaskScale:
    """From the scores `[run]` of all algorithms and seeds on a task, and its reference levels."""
    if scale == "min-max":
        return TaskScale(float(scores.min()), float(scores.max()), "worst run", "best run")
    if RANDOM not in references:
        raise AnalysisError(f"{task}: no reference level of a random policy; use scale='min-max', which needs none")
    others = {name: level for name, level in references.items() if name != RANDOM}
    if not others:
        if scores.max() > references[RANDOM]:
            return TaskScale(references[RANDOM], float(scores.max()), RANDOM, "best run")
        return TaskScale(float(scores.min()), references[RANDOM], "worst run", RANDOM)  # none is better than random
    best = max(others, key=others.__getitem__)
    return TaskScale(references[RANDOM], others[best], RANDOM, best)
