"""Tries random inputs: overrides, YAML files, run folders, checkpoints, recordings, messages of simulators.

    python -m tests.fuzz                                         a sample of each kind, 5 minutes
    python -m tests.fuzz overrides --n 20000 --seed 3
    python -m tests.fuzz recordings --n 2000 --keep tests/fuzz/corpus

Input number k of a seed is always the same. `--keep` stores inputs with a wrong outcome as `<kind>/<outcome>-<number>`;
the tests try every file of `tests/fuzz/corpus` again. The exit code is 1 if an outcome was wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fuzz.processes import RIGHT, Target, try_in_processes

BATCH = 200  # inputs in one process
SAMPLES = {
    "overrides": 1500,
    "yaml_files": 1500,
    "run_folders": 1000,
    "checkpoints": 1000,
    "messages": 5000,
    "recordings": 100,
}


def make_target(kind: str, folder: Path) -> Target:
    """The target of one kind of input, which may use a folder."""
    if kind == "overrides":
        from tests.fuzz.overrides import Overrides

        return Overrides()
    if kind == "recordings":
        from tests.fuzz.recordings import Recordings

        return Recordings(folder)
    if kind == "yaml_files":
        from tests.fuzz.yaml_files import YamlFiles

        return YamlFiles(folder)
    if kind == "run_folders":
        from tests.fuzz.run_folders import RunFolders

        return RunFolders(folder)
    if kind == "checkpoints":
        from tests.fuzz.checkpoints import Checkpoints

        return Checkpoints(folder)
    from tests.fuzz.messages import Messages

    return Messages(folder)


def fuzz(kind: str, n: int, seed: int, keep: Path | None, say: Callable[[str], None], start: int = 0) -> bool:
    """Tries inputs `start` to `start + n` of one kind; returns whether all outcomes were right."""
    counts: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marlnb-fuzz-") as folder:
        target = make_target(kind, Path(folder))
        for first in range(start, start + n, BATCH):
            numbers = range(first, min(start + n, first + BATCH))
            inputs = [(number, target.draw(np.random.default_rng([seed, number]))) for number in numbers]
            for number, data, (outcome, text) in try_in_processes(target, inputs):
                counts[outcome] += 1
                if outcome in RIGHT:
                    continue
                problems[f"{outcome}: {text}"] += 1
                if problems[f"{outcome}: {text}"] == 1:
                    say(f"{kind} {number}: {outcome}: {text}")
                    if keep is not None:
                        (keep / kind).mkdir(parents=True, exist_ok=True)
                        (keep / kind / f"{outcome}-{seed}-{number}").write_bytes(data)
    total = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    say(f"{kind}: {n:,} inputs of seed {seed} in {time.monotonic() - started:.0f} s: {total}")
    for text, count in problems.most_common(20):
        say(f"  {count} × {text}")
    return not problems


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(SAMPLES)} (default all)")
    parser.add_argument("--n", type=int, help="inputs of each kind (default a sample)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, help="a folder for inputs with a wrong outcome")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(SAMPLES):
        parser.error(f"no kind {', '.join(sorted(unknown))}; valid: {', '.join(SAMPLES)}")

    def say(text: str) -> None:
        print(text, flush=True)

    results = [
        fuzz(kind, options.n or SAMPLES[kind], options.seed, options.keep, say, options.start)
        for kind in options.kinds or SAMPLES
    ]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
