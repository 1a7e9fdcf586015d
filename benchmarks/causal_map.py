"""A causal map of one hidden layer, compared with `intervene` called for one unit after another.

Both play the same episodes and measure the same outcomes with intervals; the benchmark checks that the effects on
returns agree. Seconds are processor time of one torch thread. By default `intervene` is timed on every k-th unit and
its median is taken times the number of units.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch

import marlnb as mnb
from benchmarks.table import Row, report

DATA = Path(__file__).parents[1] / "data"
CASES = (("speaker_listener", "listener", 20), ("speaker_listener", "listener", 50), ("simple_tag", "adversary", 50))
LARGE = ("speaker_listener", "listener", 200)
"""One rollout saves calls, not arithmetic, so its advantage falls with the number of episodes: there is no target."""
TARGET = 20.0
Result = TypeVar("Result")


def seconds(work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def rows_of(folder: str, group: str, episodes: int, every: int, repetitions: int) -> list[Row]:
    run = mnb.Run.open(DATA / folder)
    site = f"{group}/actor/hidden_1"
    in_turn: list[float] = []
    together: list[float] = []
    for _ in range(repetitions):
        spent, result = seconds(lambda: mnb.causal_map(run, site, episodes=episodes, progress=False))
        together.append(spent)
        units, times = [each.unit for each in result.units], []
        for unit in units[::every]:
            edit = mnb.Ablate(site, units=(unit,))
            spent, alone = seconds(partial(mnb.intervene, run, edit, episodes=episodes, progress=False))
            times.append(spent)
            difference = alone.of("return", group).difference - result.of(unit, "return", group).difference
            assert abs(difference) < 1e-3, f"unit {unit}: the returns differ by {difference}"
        in_turn.append(median(times) * len(units))
    title = f"{folder}, {len(units)} units, {episodes} episodes"
    target = None if (folder, group, episodes) == LARGE else TARGET
    rates = {name: tuple(1 / spent for spent in times) for name, times in (("map", together), ("turn", in_turn))}
    return [
        Row(f"{title}: causal_map", rates["map"], "maps/CPU s", f"{title}: intervene", target),
        Row(f"{title}: intervene", rates["turn"], "maps/CPU s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=8, help="time intervene on every k-th unit")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows_of(*CASES[0][:2], 2, 32, 1)  # imports and first calls
    rows = [row for case in (*CASES, LARGE) for row in rows_of(*case, arguments.every, arguments.repetitions)]
    report("causal_map", "Every unit of a hidden layer ablated by itself", rows)


if __name__ == "__main__":
    main()
