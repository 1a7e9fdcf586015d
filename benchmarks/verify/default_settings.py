"""How well and how fast `marlnb train env=E algorithm=A` learns, with no other option: a table for the docs.

    python -m benchmarks.verify.default_settings simple_spread mappo, connect_four [--seconds 60] [--seeds 0 1 2]

Each training run lasts `--seconds`, without set-up, and is scored at marks with the clock stopped, greedy, over the
same episodes. Run it alone on the machine, where the clock is the wall's; on a busy one, `--clock cpu` gives each
training run CPU-seconds of one thread, without worker processes. All training runs with the first seed come first, and
one that is complete is not repeated, so it can be stopped and continued. Every training run is a line of curves.jsonl,
with its settings: once the tuned settings change, it counts no longer. The file is kept in the repository. The table is
    printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.table import markdown_table
from benchmarks.tune.curve import Clock, Point, learning_curve, warm_up
from benchmarks.tune.halving import SearchTask
from benchmarks.tune.journal import append_line
from benchmarks.tune.scoring import SEATS, Scores, objective, scores
from benchmarks.tune.spaces import choose, in_one_thread
from marlnb.composition.differences import started_values
from marlnb.envs.mpe.scripted import REFERENCE_RETURNS
from marlnb.experiment import Experiment
from marlnb.training.runs.files import read_lines

FOLDER = Path(__file__).with_name("default_settings")  # the lines of each clock
GOAL_S, LATE_S = 60.0, 300.0
SHARE_OF_BEST = 0.9
HEADER = (
    *("environment", "algorithm", "random", "scripted", "best known", "after 60 s", "by seed", "goal", "after 300 s"),
    "seconds to 90% of the best known",
)
WINS = "{} player's wins"
GOALS: Mapping[str, Mapping[str, float]] = {  # after 60 seconds of two cores, by row of the table and algorithm
    "mpe/simple_spread": {"ippo": -10, "mappo": -10, "maddpg": -11, "qmix": -14, "vdn": -14},
    "mpe/simple_speaker_listener": {"mappo": -9, "maddpg": -9},
    "mpe/simple_reference": {"mappo": -15},
    "mpe/simple_tag": dict.fromkeys(("ippo", "mappo", "maddpg", "masac", "qmix", "vdn"), 30),
    "pettingzoo/connect_four, first player's wins": {"ippo": 0.97},
    "pettingzoo/connect_four, second player's wins": {"ippo": 0.92},
}


@dataclass(frozen=True)
class Curve:
    """One training run with the default settings."""

    env: str
    algorithm: str
    seed: int
    points: tuple[Point, ...]

    def is_of(self, task: SearchTask, seed: int) -> bool:
        return (self.env, self.algorithm, self.seed) == (task.env, task.algorithm, seed)

    def score(self, seconds: float, quantity: Quantity) -> float | None:
        """The greedy score at the first point that is not before a mark; None where the training was shorter."""
        late = (point for point in self.points if point.seconds >= seconds)
        point = next(late, None)
        return None if point is None else quantity.of(point.greedy)

    def seconds_to(self, target: float, quantity: Quantity) -> float:
        """When a greedy score first reached the target; infinite if none did."""
        good = (point.seconds for point in self.points if quantity.of(point.greedy) >= target)
        return next(good, inf)


@dataclass(frozen=True)
class Quantity:
    """What a row of the table shows of an environment.

    Attributes:
        name: after the environment's; empty where it has one row.
        of: the number, of greedy scores; the higher, the better.
    """

    name: str
    of: Callable[[Scores], float]


def measure(
    tasks: Sequence[SearchTask], seeds: Sequence[int], seconds: float, folder: Path, clock: Clock = "wall"
) -> None:
    """Trains what FOLDER/curves.jsonl lacks, and the scores of random actions that FOLDER/random.jsonl lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    warm: set[str] = set()
    for seed in seeds:
        for task in tasks:
            if task.env not in random_scores(folder):
                values = scores(compose(task, 0), None, episodes=task.episodes, explore=True)
                rounded = {name: round(value, 3) for name, value in values.items()}
                append_line(folder / "random.jsonl", {"env": task.env, "scores": rounded})
            if any(curve.is_of(task, seed) and curve.points[-1].seconds >= seconds for curve in curves(folder)):
                continue
            experiment = compose(task, seed, *(in_one_thread(task.env) if clock == "cpu" else ()))
            if task.name not in warm:
                warm_up(experiment)
                warm.add(task.name)
            marks_s = [*(mark for mark in task.marks_s if mark < seconds), seconds]
            points = list(learning_curve(experiment, marks_s, clock=clock, episodes=task.episodes))
            row = {"env": task.env, "algorithm": task.algorithm, "seed": seed, "clock": clock, **_circumstances()}
            row |= {"settings": settings(task.env, task.algorithm), "points": [point.to_json() for point in points]}
            append_line(folder / "curves.jsonl", row)
            print(f"{task.name}, seed {seed}: {points[-1].greedy}", file=sys.stderr, flush=True)


def compose(task: SearchTask, seed: int, *words: str) -> Experiment:
    """What a user gets who gives only the names, and a seed; and `words`, which are no settings."""
    return Experiment.compose(f"env={task.env}", f"algorithm={task.algorithm}", f"seed={seed}", *words)


@cache
def settings(env: str, algorithm: str) -> Mapping[str, Any]:
    """The tuned or derived values of today, by option."""
    experiment = Experiment.compose(f"env={env}", f"algorithm={algorithm}")
    return {name: value for name, (value, _) in sorted(started_values(experiment).items())}


def _circumstances() -> dict[str, Any]:
    """When a training run ran, and how busy the machine was: `load` is the number of processes that wanted a core."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"date": date, "cores": os.cpu_count(), "load": round(os.getloadavg()[1], 1)}


def curves(folder: Path) -> list[Curve]:
    """The training runs of a folder with today's settings; of those of the same names and seed the last one."""
    rows = {
        (row["env"], row["algorithm"], row["seed"]): row
        for row in read_lines(folder / "curves.jsonl")
        if row["settings"] == settings(row["env"], row["algorithm"])
    }
    return [Curve(*key, tuple(Point(**point) for point in row["points"])) for key, row in rows.items()]


def random_scores(folder: Path) -> dict[str, Scores]:
    return {row["env"]: row["scores"] for row in read_lines(folder / "random.jsonl")}


def quantities(env: str) -> list[Quantity]:
    """A game has a row for each seat, with the share of games won; draws count as half."""
    if env not in SEATS:
        return [Quantity("", partial(objective, env))]
    return [Quantity(WINS.format(seat), partial(_wins, seat)) for seat in SEATS[env]]


def _wins(seat: str, values: Scores) -> float:
    return (1 + values[seat]) / 2


def table(folder: Path) -> str:
    """A row for each environment and algorithm: medians over seeds, with the lowest and the highest."""
    measured, random = curves(folder), random_scores(folder)
    rows = []
    for env in dict.fromkeys(curve.env for curve in measured):
        of_env = [curve for curve in measured if curve.env == env]
        for algorithm in dict.fromkeys(curve.algorithm for curve in of_env):
            same = sorted((curve for curve in of_env if curve.algorithm == algorithm), key=lambda curve: curve.seed)
            for shown in quantities(env):
                rows.append(_row(same, shown, shown.of(random[env]), best_known(env, of_env, shown)))
    return markdown_table(HEADER, rows) + "\n"


def scripted(env: str) -> float | None:
    """The return of marlnb's scripted policy, where there is one."""
    return REFERENCE_RETURNS.get(env.removeprefix("mpe/"), {}).get("scripted oracle")


def best_known(env: str, measured: Sequence[Curve], shown: Quantity) -> float:
    """The scripted policy's score or the best one measured, whichever is higher; in games, winning always."""
    if env in SEATS:
        return 1.0
    candidates = [shown.of(point.greedy) for curve in measured for point in curve.points]
    oracle = scripted(env)
    return max(candidates if oracle is None else [*candidates, oracle])


def _row(same: Sequence[Curve], shown: Quantity, random: float, best: float) -> tuple[str, ...]:
    """Of the training runs of one environment and algorithm."""
    env, algorithm, form = same[0].env, same[0].algorithm, ".3f" if shown.name else ".2f"
    target, oracle = random + SHARE_OF_BEST * (best - random), scripted(env)
    early, late = (
        {curve.seed: score for curve in same if (score := curve.score(mark, shown)) is not None}
        for mark in (GOAL_S, LATE_S)
    )
    goal = GOALS.get(f"{env}, {shown.name}" if shown.name else env, {}).get(algorithm)
    return (
        f"`{env}`" + (f", {shown.name}" if shown.name else ""),
        algorithm,
        f"{random:{form}}",
        "" if oracle is None else f"{oracle:{form}}",
        f"{best:{form}}",
        _interval(list(early.values()), form),
        ", ".join(f"{seed}: {score:{form}}" for seed, score in early.items()),
        "" if goal is None or not early else f"{goal:g}, {'met' if median(early.values()) >= goal else 'missed'}",
        _interval(list(late.values()), form),
        _interval([curve.seconds_to(target, shown) for curve in same], ".0f"),
    )


def _interval(values: Sequence[float], form: str) -> str:
    """median (lowest to highest); infinite ones were not reached."""
    if not values:
        return ""
    low, middle, high = (
        "not reached" if value == inf else format(value, form) for value in (min(values), median(values), max(values))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verify.default_settings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="words of an environment and algorithm, ...")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=300.0, help="of each training run (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of --seconds (%(default)s)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"default: {FOLDER.name}/CLOCK next to this file")
    arguments = parser.parse_args(words)
    try:
        tasks = choose(arguments.words)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    out = arguments.out or FOLDER / arguments.clock
    measure(tasks, arguments.seeds, arguments.seconds, out, arguments.clock)
    print(table(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
