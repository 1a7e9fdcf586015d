"""Many runs as matrices that statistics can be taken of: what is compared, on which scale, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marlnb.analysis.benchmarking.marl_eval import RETURN, Measured, Which, check_unique
from marlnb.analysis.benchmarking.statistics import normalise
from marlnb.errors import AnalysisError, unknown

Scale = Literal["references", "min-max"]
SCALES = ("references", "min-max")
RANDOM = "random"
PLACES = 50


@dataclass(frozen=True)
class Level:
    """The scale of one task: the returns that count as 0 and 1, in units of reward, and what they are."""

    low: float
    high: float
    low_is: str
    high_is: str

    def __str__(self) -> str:
        return f"0 = {self.low_is} ({self.low:.4g}), 1 = {self.high_is} ({self.high:.4g})"


@dataclass(frozen=True)
class Comparison:
    """Runs of several algorithms on the tasks that all of them have.

    Attributes:
        scores: by algorithm, `[seed, task]`, normalised.
        curves: by algorithm, `[seed, task, place]`, normalised, at `shares`.
        shares: `[place]`, of each run's frames.
        levels: by task, the scale of its scores.
        seeds: by algorithm, the seeds of the rows.
        left_out: what was not compared, and why, for a person to read.
    """

    tasks: tuple[str, ...]
    scores: dict[str, np.ndarray]
    curves: dict[str, np.ndarray]
    shares: np.ndarray
    levels: dict[str, Level]
    seeds: dict[str, tuple[int, ...]]
    left_out: tuple[str, ...]

    def describe_scale(self) -> str:
        """One line a task: what counts as 0 and as 1."""
        return "\n".join(f"{task}: {self.levels[task]}" for task in self.tasks)


def compare_runs(
    runs: Sequence[Measured],
    *,
    metric: str = RETURN,
    which: Which = "final",
    references: Mapping[str, Mapping[str, float]] | None = None,
    scale: Scale = "references",
) -> Comparison:
    """Scores of every algorithm on the tasks that all algorithms have, with the seeds that all of those tasks have.

    Args:
        metric: `return`, or `<group>_return`.
        which: the score of a run: its `final` evaluation, its `best`, or the `absolute` one.
        references: by task, named levels in units of reward; `random` is the scale's 0, and its 1 the highest level
            other than random; where there is none, the best score among these runs; where none of these is better than
            random, that is 1, and the worst of them 0. Each task's `Level` says which.
        scale: "references", or "min-max" from the worst to the best score among these runs.
    Raises:
        AnalysisError: no common task, no random level where one is needed, or runs without the metric.
    """
    if scale not in SCALES:
        raise AnalysisError(unknown("scale", scale, SCALES))
    check_unique(runs)
    by_place = {(run.algorithm, run.task, run.seed): run for run in runs}
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    tasks, seeds, left_out = _rectangle(by_place, algorithms)
    raw = {
        name: np.array([[by_place[name, task, seed].score(metric, which) for task in tasks] for seed in seeds[name]])
        for name in algorithms
    }
    everything = np.concatenate(list(raw.values()))
    levels = {
        task: _level(task, everything[:, k], (references or {}).get(task, {}), scale) for k, task in enumerate(tasks)
    }
    low, high = ([getattr(levels[task], end) for task in tasks] for end in ("low", "high"))
    shares = np.linspace(0, 1, PLACES + 1)[1:]
    curves = {}
    for name in algorithms:
        values = [[_resampled(by_place[name, task, seed], metric, shares) for task in tasks] for seed in seeds[name]]
        curves[name] = np.moveaxis(normalise(np.moveaxis(np.array(values), 1, -1), low, high, tasks), -1, 1)
    return Comparison(
        tasks=tuple(tasks),
        scores={name: normalise(matrix, low, high, tasks) for name, matrix in raw.items()},
        curves=curves,
        shares=shares,
        levels=levels,
        seeds=seeds,
        left_out=tuple(left_out),
    )


def task_curves(runs: Sequence[Measured], task: str, metric: str = RETURN) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By algorithm, frames `[place]` and curves `[seed, place]` of one task, in units of reward.

    The places are those at which every seed's run was evaluated.

    Raises:
        AnalysisError: no run of the task, or seeds that were never evaluated at the same frames.
    """
    mine = [run for run in runs if run.task == task]
    if not mine:
        raise AnalysisError(unknown("task", task, sorted({run.task for run in runs})))
    found = {}
    for name in dict.fromkeys(run.algorithm for run in mine):
        group = [run for run in mine if run.algorithm == name]
        frames = sorted(set.intersection(*(set(run.frames) for run in group)))
        if not frames:
            raise AnalysisError(f"{task}, {name}: its seeds were never evaluated at the same frames")
        picked = [run.curve(metric)[np.isin(run.frames, frames)] for run in group]
        found[name] = (np.array(frames), np.array(picked))
    return found


def _rectangle(
    by_place: Mapping[tuple[str, str, int], Measured], algorithms: Sequence[str]
) -> tuple[list[str], dict[str, tuple[int, ...]], list[str]]:
    """Tasks that all algorithms have, by algorithm the seeds that all of those tasks have, and what that leaves out."""
    of = {name: {task for algorithm, task, _ in by_place if algorithm == name} for name in algorithms}
    every = list(dict.fromkeys(task for _, task, _ in by_place))
    tasks = [task for task in every if all(task in of[name] for name in algorithms)]
    if not tasks:
        had = "; ".join(f"{name}: {', '.join(sorted(of[name]))}" for name in algorithms) or "there are no runs"
        raise AnalysisError(f"no task that every algorithm has runs of: {had}")
    left_out = [
        f"{task}: no runs of {', '.join(name for name in algorithms if task not in of[name])}"
        for task in every
        if task not in tasks
    ]
    seeds = {}
    for name in algorithms:
        have = [{seed for algorithm, at, seed in by_place if (algorithm, at) == (name, task)} for task in tasks]
        seeds[name] = tuple(sorted(set.intersection(*have)))
        if not seeds[name]:
            raise AnalysisError(f"{name}: no seed has runs of all of {', '.join(tasks)}")
        lost = sorted(set.union(*have) - set(seeds[name]))
        if lost:
            left_out.append(f"{name}, seed {', '.join(map(str, lost))}: not of every task")
    return tasks, seeds, left_out


def _level(task: str, scores: np.ndarray, references: Mapping[str, float], scale: Scale) -> Level:
    """Of the scores `[run]` of all algorithms on a task and its reference levels."""
    if scale == "min-max":
        return Level(float(scores.min()), float(scores.max()), "worst run", "best run")
    if RANDOM not in references:
        raise AnalysisError(f"{task}: no level of a random policy to normalise by; scale='min-max' needs none")
    others = {name: level for name, level in references.items() if name != RANDOM}
    if not others:
        if scores.max() > references[RANDOM]:
            return Level(references[RANDOM], float(scores.max()), RANDOM, "best run")
        return Level(float(scores.min()), references[RANDOM], "worst run", RANDOM)  # none is better than random
    best = max(others, key=others.__getitem__)
    return Level(references[RANDOM], others[best], RANDOM, best)


def _resampled(run: Measured, metric: str, shares: np.ndarray) -> np.ndarray:
    """A run's curve at shares of its frames, by straight lines; before its first evaluation, that one's value."""
    return np.interp(shares * run.frames[-1], run.frames, run.curve(metric))
