"""Runs the checks' training runs and compares the results with the checks' targets: `make verify ARGS="spread"`.

Each check is a benchmark of its own in FOLDER/<name>: a complete run is not trained again, an interrupted one resumes.
The table is printed and written to FOLDER/verification.md, for docs/verification.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.table import markdown_table
from benchmarks.verify.checks import CHECKS, Check, choose
from marlnb.batch.benchmark.benchmark import Benchmark
from marlnb.batch.benchmark.run_benchmark import benchmark
from marlnb.batch.benchmark.spec import BenchmarkSpec
from marlnb.errors import MarlnbError

EVALUATION = ("evaluation_episodes=100",)


def plan_of(check: Check) -> BenchmarkSpec:
    """The check as a benchmark of one algorithm in one environment."""
    env = next(word.removeprefix("env=") for word in check.overrides if word.startswith("env="))
    if any(word.startswith("algorithm=") for word in check.overrides):
        label = next(word.removeprefix("algorithm=") for word in check.overrides if word.startswith("algorithm="))
    else:
        label = "mixture"
    return BenchmarkSpec.make({label: check.overrides}, [env], check.seeds, overrides=EVALUATION, evaluations=10)


def results(benchmark: Benchmark, check: Check) -> dict[int, float]:
    """By seed, the mean return of the best policy over 1,000 episodes that were not used to choose it."""
    return {run.seed: run.score(check.metric, "absolute") for run in benchmark.complete_runs()}


def row(check: Check, scores: dict[int, float]) -> tuple[str, ...]:
    """A line of the table; without a result where a seed is missing."""
    complete = set(scores) == set(check.seeds)
    middle = median(scores.values()) if complete else None
    each = ", ".join(f"{seed}: {score:.2f}" for seed, score in sorted(scores.items())) or "–"
    if middle is None:
        verdict = "not run"
    elif check.target is None:
        verdict = "measured"
    else:
        verdict = "reached" if middle >= check.target else "**missed**"
    shown = "–" if middle is None else f"{middle:.2f}"
    command = f"`marlnb train {' '.join(check.overrides)}`"
    metric = "" if check.metric == "return" else f" ({check.metric})"
    return check.name, f"{_target(check)}{metric}", shown, each, verdict, command, check.source


def _target(check: Check) -> str:
    return "none yet" if check.target is None else f"≥ {check.target:g}"


def table(rows: Sequence[Sequence[str]]) -> str:
    header = ("check", "target", "median", "by seed", "", "command, with `seed=`", "source of the target")
    return markdown_table(header, rows) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="checks whose names hold this (else all)")
    parser.add_argument("--out", default="runs/verify", metavar="FOLDER", help="where runs are kept (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes side by side (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the checks, train nothing")
    arguments = parser.parse_args(words)
    try:
        chosen = choose(arguments.names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.list:
        for check in chosen:
            print(f"{check.name:26} {_target(check):10} marlnb train {' '.join(check.overrides)}")
        return 0
    return verify(chosen, Path(arguments.out), arguments.jobs)


def verify(chosen: Sequence[Check], out: Path, jobs: int) -> int:
    """0 when every check reached its target, 1 when one missed it or failed, 130 when it was stopped."""
    missed = stopped = False
    for number, check in enumerate(chosen, 1):
        print(f"check {number} of {len(chosen)}: {check.name}", file=sys.stderr)
        try:
            trained = benchmark(plan_of(check), out / check.name, jobs=jobs, report=False)
        except MarlnbError as error:
            print(f"{check.name}: {error}", file=sys.stderr)
            missed = True
            continue
        scores = results(trained, check)
        missed |= len(scores) < len(check.seeds)
        missed |= check.target is not None and bool(scores) and median(scores.values()) < check.target
        if trained.stopped:
            stopped = True
            break
    rows = [row(check, scores_of(out, check)) for check in CHECKS]
    out.mkdir(parents=True, exist_ok=True)
    (out / "verification.md").write_text(table(rows))
    print(table(rows))
    return 130 if stopped else int(missed)


def scores_of(out: Path, check: Check) -> dict[int, float]:
    """A check's benchmark, trained now or before; None where its experiment cannot be composed here."""
    folder = out / check.name
    try:
        return results(Benchmark.open(folder), check)
    except MarlnbError:
        return {}


if __name__ == "__main__":
    sys.exit(main())
