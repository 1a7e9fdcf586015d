"""Tables for the docs of what `marlnb train env=E algorithm=A` reaches, with no other option.

    python -m benchmarks.verify.score_tables

There is a row for each task and a column for each algorithm. They are computed from the curves of all machines, which
`benchmarks.verify.default_settings` has measured. A cell is of one machine: the first with three seeds, else that with
the most.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import itemgetter
from pathlib import Path
from statistics import median

from benchmarks.table import markdown_table
from benchmarks.tune.scoring import RANKED_GROUP, SEATS, Scores
from benchmarks.verify.default_settings import (
    FOLDER,
    GOAL_S,
    GOALS,
    LATE_S,
    SHARE_OF_BEST,
    Curve,
    Quantity,
    curves,
    quantities,
    random_scores,
    scripted,
)
from marlnb.display.formatting import count

MACHINES: Mapping[str, tuple[str, str]] = {
    "cpu-genoa": ("", "Zen 4"),
    "cpu-avx512": ("ᵃ", "AVX-512ᵃ"),
    "wall": ("ⁱ", "AVX-512, idleⁱ"),
    "cpu-xeon": ("ˣ", "Xeonˣ"),
    "cpu": ("ᵛ", "AVX2ᵛ"),
}
"""By folder, the mark of its cells and its name in the docs."""
ALGORITHMS = ("ippo", "mappo", "maddpg", "masac", "qmix", "vdn")
ENOUGH_SEEDS = 3
Measured = Mapping[str, Sequence[Curve]]  # by machine


@dataclass(frozen=True)
class Task:
    """A row of the tables.

    Attributes:
        env: its name.
        shown: what is shown of its scores.
        random: of random actions.
        best: the scripted policy's or the best measured, whichever is higher; in games, winning always.
    """

    env: str
    shown: Quantity
    random: float
    best: float

    @property
    def name(self) -> str:
        return f"`{self.env}`" + (f", {self.shown.name}" if self.shown.name else "")

    @property
    def target(self) -> float:
        """The score at 90% of the way from random actions to the best."""
        return self.random + SHARE_OF_BEST * (self.best - self.random)

    def format(self, score: float) -> str:
        """With the digits that this task needs: shares of games have three."""
        return f"{score:{'.3f' if self.env in SEATS else '.1f'}}".replace("-", "−")


def read(folder: Path = FOLDER) -> tuple[Measured, Mapping[str, Scores]]:
    """The curves with today's settings by machine, and the random scores by environment."""
    random: dict[str, Scores] = {}
    for machine in MACHINES:
        random |= random_scores(folder / machine)
    return {machine: curves(folder / machine) for machine in MACHINES}, random


def tasks(measured: Measured, random: Mapping[str, Scores]) -> list[Task]:
    """A row for each side or group of each environment; one where all groups have the same return."""
    every = [curve for of_machine in measured.values() for curve in of_machine]
    rows = []
    for env in sorted({curve.env for curve in every}):
        of_env = [point.greedy for curve in every if curve.env == env for point in curve.points]
        for shown in _shown(env, of_env):
            known = [shown.of(scores) for scores in of_env]
            oracle = scripted(env)
            best = 1.0 if env in SEATS else max(known if oracle is None else [*known, oracle])
            rows.append(Task(env, shown, shown.of(random[env]), best))
    return rows


def _shown(env: str, scores: Sequence[Scores]) -> list[Quantity]:
    if env in SEATS:
        return quantities(env)
    if all(len(set(each.values())) == 1 for each in scores):
        return [Quantity("", lambda each: next(iter(each.values())))]
    return [Quantity(group, itemgetter(group)) for group in scores[0]]


def chosen(task: Task, algorithm: str, measured: Measured, seconds: float) -> tuple[str, list[Curve]]:
    """The machine of a cell, and its curves of at least this time; the first machine and none if there are none."""
    by_machine = {
        machine: [
            curve
            for curve in of_machine
            if (curve.env, curve.algorithm) == (task.env, algorithm) and curve.points[-1].seconds >= seconds
        ]
        for machine, of_machine in measured.items()
    }
    machine = max(by_machine, key=lambda each: _n_seeds(by_machine[each]))  # of equal ones the first
    return machine, by_machine[machine]


def _n_seeds(same: Sequence[Curve]) -> int:
    """The number of seeds, at most ENOUGH_SEEDS: more are no better."""
    return min(len(same), ENOUGH_SEEDS)


def score_cell(task: Task, algorithm: str, measured: Measured, seconds: float) -> str:
    """Scores after a time of training: median, lowest and highest over seeds, with the machine's mark."""
    machine, same = chosen(task, algorithm, measured, seconds)
    scores = [score for curve in same if (score := curve.score(seconds, task.shown)) is not None]
    return _spread(scores, task.format, MACHINES[machine][0])


def time_cell(task: Task, algorithm: str, measured: Measured) -> str:
    """Seconds until `task.target`, of the longest runs with three seeds: median, lowest and highest over seeds."""
    longest = max((LATE_S, GOAL_S), key=lambda seconds: _n_seeds(chosen(task, algorithm, measured, seconds)[1]))
    machine, same = chosen(task, algorithm, measured, longest)
    times = [curve.seconds_to(task.target, task.shown) for curve in same]
    return _spread(times, lambda time: f"> {longest:.0f}" if time == inf else f"{time:.0f}", MACHINES[machine][0])


def _spread(values: Sequence[float], form: Callable[[float], str], mark: str) -> str:
    """median (lowest to highest), the number of seeds where it is small, and the mark; empty for no values."""
    if not values:
        return ""
    low, middle, high = (form(number) for number in (min(values), median(values), max(values)))
    spread = "" if low == high else f" ({low} to {high})"
    seeds = "" if len(values) >= ENOUGH_SEEDS else f", {count(len(values), 'seed')}"
    return f"{middle}{spread}{seeds}{mark}"


def table(rows: Sequence[Task], cells: Callable[[Task, str], str], *columns: tuple[str, Callable[[Task], str]]) -> str:
    """A line for each task with a measured cell. `columns`: of tasks alone, before the algorithms."""
    header = ("task", *(title for title, _ in columns), *ALGORITHMS)
    lines = []
    for task in rows:
        measured = [cells(task, algorithm) for algorithm in ALGORITHMS]
        if any(measured):
            lines.append((task.name, *(of(task) for _, of in columns), *measured))
    return markdown_table(header, lines)


def goal_table(rows: Sequence[Task], measured: Measured) -> str:
    """A line for each goal after a minute that was measured with three seeds, and a column for each machine."""
    lines = []
    for task in rows:
        goals = GOALS.get(f"{task.env}, {task.shown.name}" if task.env in SEATS else task.env, {})
        for algorithm, goal in goals.items() if _is_ranked(task) else ():
            cells = {machine: _goal_cell(task, algorithm, measured[machine], goal) for machine in MACHINES}
            if any(cells.values()):
                lines.append(((task.name, algorithm, f"≥ {goal:g}".replace("-", "−")), cells))
    shown = [machine for machine in MACHINES if any(cells[machine] for _, cells in lines)]
    header = ("task", "algorithm", "goal", *(MACHINES[machine][1] for machine in shown))
    return markdown_table(header, [(*start, *(cells[machine] for machine in shown)) for start, cells in lines])


def _is_ranked(task: Task) -> bool:
    """Whether a goal of the environment is one of this row."""
    return RANKED_GROUP.get(task.env, task.shown.name) == task.shown.name


def _goal_cell(task: Task, algorithm: str, of_machine: Sequence[Curve], goal: float) -> str:
    same = [curve for curve in of_machine if (curve.env, curve.algorithm) == (task.env, algorithm)]
    scores = [score for curve in same if (score := curve.score(GOAL_S, task.shown)) is not None]
    if len(scores) < ENOUGH_SEEDS:
        return ""
    return f"{_spread(scores, task.format, '')}{'' if median(scores) >= goal else ', missed'}"


def _without_training(task: Task) -> str:
    known = scripted(task.env)
    return task.format(task.random) + ("" if known is None else f"; {task.format(known)}")


def tables(folder: Path = FOLDER) -> dict[str, str]:
    """By caption."""
    measured, random = read(folder)
    rows = tasks(measured, random)
    by_score = {
        f"after {seconds:g} seconds": table(
            rows, partial(score_cell, measured=measured, seconds=seconds), ("random; scripted", _without_training)
        )
        for seconds in (GOAL_S, LATE_S)
    }
    best_column = ("best known", lambda task: task.format(task.best))
    return {
        "goals": goal_table(rows, measured),
        **by_score,
        "seconds to 90%": table(rows, partial(time_cell, measured=measured), best_column),
    }


def main() -> int:
    for caption, text in tables().items():
        print(f"{caption}\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
