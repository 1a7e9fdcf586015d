"""Kills and refuses at calls that write: `python -m tests.faults [--scenario train] [--kind kill] [--every 1]`.

After a kill the same command, given again, completes, and leaves what an undisturbed one does. A disk that refuses is
an error of marlnb, which names the disk; a training's state is then "failed"; and the command completes when the disk
works again. A clock that is set back changes nothing. Where a fault leaves the same files as an earlier one, the
command is not given again.

Calls that do the same to the same sort of file after the same call before are a group (`groups.py`); of each group the
first call, the last and two between are tried. `--every 1` tries all calls, `--every 5` each fifth. With `--log FILE`
each attempt is a line of that file, and a test that was interrupted and is given again continues after the last one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from marlnb.display.formatting import format_duration
from tests.faults.groups import KINDS, Attempt, planned
from tests.faults.processes import Fault, compiler, has_library, run_with_library

NAMES = (
    *("train", "evolve", "league", "retire", "record", "segments", "merge", "repair", "backfill"),
    *("attribute", "export", "batch", "supervisor", "job"),
)
PROGRESS_EVERY_S = 60.0


def read_log(path: Path | None) -> dict[Attempt, list[str]]:
    """What was wrong in each attempt of an earlier test; a line that a kill cut off is none."""
    if path is None:
        return {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    path.write_text("".join(lines))
    rows = map(json.loads, lines)
    return {(row["scenario"], row["kind"], row["at"]): row["problems"] for row in rows}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--scenario", choices=NAMES, action="append", help="may be given several times")
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be given several times")
    parser.add_argument("--every", type=int, help="try each k-th call (default: up to four calls of each group)")
    parser.add_argument("--first", type=int, default=1, help="the first call to try")
    parser.add_argument("--log", type=Path, help="a file with the attempts that were made, which are not made again")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if not has_library():
            if compiler() is None:
                parser.error("this machine has no C compiler (cc, gcc or clang) for tests/faults/faults.c")
            return run_with_library(["-m", "tests.faults", *arguments], Path(folder))
        return try_all(options, Path(folder))


def try_all(options: argparse.Namespace, folder: Path) -> int:
    """Makes the attempts that the log does not have; returns the exit code."""
    from tests.faults.trials import Trial
    from tests.recording.forked_walks import walk_in_forks

    walk_in_forks()
    trials = {name: Trial(name, folder) for name in options.scenario or NAMES}
    calls = {name: trial.calls for name, trial in trials.items()}
    attempts = planned(calls, options.kind or KINDS, options.every, options.first)
    done = read_log(options.log)
    left = [attempt for attempt in attempts if attempt not in done]
    print(
        f"{len(attempts):,} attempts, {len(left):,} left; calls: { {name: len(of) for name, of in calls.items()} }",
        flush=True,
    )
    shown_at = started = time.monotonic()
    for n_done, (name, kind, at) in enumerate(left):
        if time.monotonic() - shown_at > PROGRESS_EVERY_S:
            shown_at = time.monotonic()
            left_s = (shown_at - started) / n_done * (len(left) - n_done) if n_done else 0.0
            print(f"{n_done:,} of {len(left):,}, {format_duration(left_s)} left", flush=True)
        problems = trials[name].problems(Fault(at, kind))
        call = trials[name].calls[at - 1]
        for problem in problems:
            print(f"{name}, {kind} at {at} ({call}): {problem}", flush=True)
        done[name, kind, at] = problems
        if options.log is not None:
            row = {"scenario": name, "kind": kind, "at": at, "call": call, "problems": problems}
            with options.log.open("a") as log:
                log.write(json.dumps(row) + "\n")
    for name, trial in trials.items():
        for kind in options.kind or KINDS:
            tried = [done[attempt] for attempt in attempts if attempt[:2] == (name, kind)]
            n_problems = sum(bool(problems) for problems in tried)
            print(f"{name}, {kind}: {len(tried)} of {len(trial.calls)} calls, {n_problems} with problems", flush=True)
    return int(any(done[attempt] for attempt in attempts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
