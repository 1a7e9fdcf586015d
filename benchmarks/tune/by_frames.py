"""Compares settings after the same frames, on a machine that does other things as well.

    python -m benchmarks.tune.by_frames "connect_four ippo" --frames 100_000 300_000 --seeds 0 1
    python -m benchmarks.tune.by_frames "connect_four ippo" --frames 300_000 --set algorithm.entropy_coef=0.1

Trains the start of a search (`spaces.py`) with the options of `--set` in place of its own, and scores it at each number
of frames. Every training run is a line of `by_frames.jsonl`, and is not repeated. Seconds and frames are not the same:
a setting that needs fewer seconds per frame is better than this comparison shows; the CPU-seconds are printed too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tune.curve import Point, learning_curve
from benchmarks.tune.halving import SearchTask, Trial
from benchmarks.tune.journal import append_line
from benchmarks.tune.search import compose
from benchmarks.tune.spaces import choose
from marlnb.training.runs.files import read_lines

FILE = Path(__file__).with_name("by_frames.jsonl")


def compare(task: SearchTask, changes: Sequence[str], seeds: Sequence[int], marks: Sequence[int], file: Path) -> None:
    """Trains what the file lacks, one training run after the other."""
    given = dict(word.split("=", 1) for word in changes)
    options = tuple(sorted(f"{name}={value}" for name, value in {**task.start, **given}.items()))
    for seed in seeds:
        row = {"cell": task.name, "options": list(options), "seed": seed, "marks": list(marks)}
        if any(row.items() <= done.items() for done in read_lines(file)):
            continue
        experiment = compose(task, Trial(task.name, options, seed, 0.0))
        points = list(learning_curve(experiment, marks, clock="frames", episodes=task.episodes))
        append_line(file, {**row, "points": [point.to_json() for point in points]})
        print(
            f"{task.name}, seed {seed}: {', '.join(map(_text, points))}  [{' '.join(changes) or 'the start'}]",
            flush=True,
        )


def _text(point: Point) -> str:
    greedy, exploring = (" ".join(f"{value:.2f}" for value in x.values()) for x in (point.greedy, point.exploring))
    return f"{point.frames:,} frames, {point.seconds:.0f} s: {greedy} (exploring {exploring})"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tune.by_frames",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", help="the task: words of its name, in quotes")
    parser.add_argument("--frames", type=int, nargs="+", required=True, help="where each training run is scored")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--set", nargs="+", default=[], metavar="OPTION=VALUE", help="in place of the start's values")
    parser.add_argument("--file", type=Path, default=FILE, help="where training runs are recorded (%(default)s)")
    arguments = parser.parse_args(words)
    try:
        (task,) = choose(arguments.words.split())
    except ValueError as error:
        print(f"one task is needed: {error}", file=sys.stderr)
        return 2
    compare(task, arguments.set, arguments.seeds, sorted(arguments.frames), arguments.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
