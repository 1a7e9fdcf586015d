"""Searches for tuned settings: `make tune ARGS="simple_spread mappo --minutes 30"`. Stopped, it continues when rerun.

It prints the settings that have won, with their scores and the search's budget. The tuned.yaml next to each family of
environments ships them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from benchmarks.tune.journal import Journal
from benchmarks.tune.results import results
from benchmarks.tune.search import SHOWN_SEEDS, search
from benchmarks.tune.spaces import HALVING, SHORT, choose

FILE = Path(__file__).with_name("trials.jsonl")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="words of the tasks' names; a comma: or")
    parser.add_argument("--minutes", type=float, default=inf, help="start no training run after so many minutes")
    parser.add_argument("--starts", action="store_true", help="train only the start of each search, once")
    parser.add_argument("--short", action="store_true", help="shorter searches, of 20 CPU-seconds a training run")
    parser.add_argument("--shown", type=int, default=len(SHOWN_SEEDS), metavar="N", help="seeds of the shown scores")
    parser.add_argument("--file", type=Path, default=FILE, help="where training runs are recorded (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the tasks, train nothing")
    parser.add_argument("--results", action="store_true", help="print the results so far, train nothing")
    arguments = parser.parse_args(words)
    try:
        tasks = choose(arguments.words)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(task.name for task in tasks))
        return 0
    if arguments.short:
        tasks = [replace(task, rungs=SHORT if task.rungs == HALVING else task.rungs) for task in tasks]
    journal, complete = Journal(arguments.file), True
    if not arguments.results:
        end = time.monotonic() + 60 * arguments.minutes
        if arguments.starts:
            first = [replace(task, rungs=(replace(task.rungs[0], n_candidates=1),)) for task in tasks]
            complete = search(first, journal, n_shown=0, end=end)
        else:
            complete = search(tasks, journal, n_shown=arguments.shown, end=end)
    print(results(tasks, journal))
    return 0 if complete else 130


if __name__ == "__main__":
    sys.exit(main())
