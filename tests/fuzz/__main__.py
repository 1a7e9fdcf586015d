"""Tries random inputs: overrides, YAML files, folders of runs and batches, checkpoints, recordings, messages, results.

    python -m tests.fuzz                                         a sample of each kind, 5 minutes
    python -m tests.fuzz overrides --n 20000 --seed 3
    python -m tests.fuzz recordings --n 2000 --keep tests/fuzz/corpus
    python -m tests.fuzz --times 10 --log build/fuzz.jsonl       ten samples of each kind, about 100,000 inputs

Input number k of a seed is always the same. `--keep` stores inputs with a wrong outcome as `<kind>/<outcome>-<number>`;
the tests try every file of `tests/fuzz/corpus` again. With `--log` what was tried is written to a file, and a command
that was interrupted and is given again continues after it. The exit code is 1 if an outcome was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from marlnb.display.formatting import format_duration
from tests.fuzz.processes import RIGHT, Target, try_in_processes

BATCH = 200  # inputs in one process
SAMPLES = {
    "overrides": 1500,
    "yaml_files": 1500,
    "run_folders": 1000,
    "checkpoints": 1000,
    "messages": 5000,
    "recordings": 100,
    "league_folders": 500,
    "evolution_folders": 500,
    "batch_folders": 500,
    "marl_eval_files": 500,
}
PROGRESS_EVERY_S = 60.0


@dataclass(frozen=True)
class Part:
    """Inputs `start` to `start + n` of a kind and seed, which are tried in one process."""

    kind: str
    seed: int
    start: int
    n: int


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
        from tests.fuzz.run_folders import run_folders

        return run_folders(folder)
    if kind in ("league_folders", "evolution_folders"):
        from tests.fuzz import population_folders

        make = population_folders.league_folders if kind == "league_folders" else population_folders.evolution_folders
        return make(folder)
    if kind == "batch_folders":
        from tests.fuzz.batch_folders import batch_folders

        return batch_folders(folder)
    if kind == "checkpoints":
        from tests.fuzz.checkpoints import Checkpoints

        return Checkpoints(folder)
    if kind == "marl_eval_files":
        from tests.fuzz.marl_eval_files import MarlEvalFiles

        return MarlEvalFiles(folder)
    from tests.fuzz.messages import Messages

    return Messages(folder)


def planned(samples: Mapping[str, int], times: int, seed: int, start: int) -> list[Part]:
    """The inputs of all kinds, in the order in which they are tried: a sample of each kind, then the next of each."""
    return [
        Part(kind, seed, first, min(BATCH, start + (k + 1) * n - first))
        for k in range(times)
        for kind, n in samples.items()
        for first in range(start + k * n, start + (k + 1) * n, BATCH)
    ]


def fuzz(target: Target, part: Part, keep: Path | None) -> tuple[Counter[str], Counter[str]]:
    """Tries inputs; returns how many had each outcome, and the wrong ones with their reasons."""
    outcomes: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    numbers = range(part.start, part.start + part.n)
    inputs = [(number, target.draw(np.random.default_rng([part.seed, number]))) for number in numbers]
    for number, data, (outcome, text) in try_in_processes(target, inputs):
        outcomes[outcome] += 1
        if outcome in RIGHT:
            continue
        wrong[f"{outcome}: {text}"] += 1
        if wrong[f"{outcome}: {text}"] == 1:
            print(f"{part.kind} {number}: {outcome}: {text}", flush=True)
            if keep is not None:
                (keep / part.kind).mkdir(parents=True, exist_ok=True)
                (keep / part.kind / f"{outcome}-{part.seed}-{number}").write_bytes(data)
    return outcomes, wrong


def read_log(path: Path | None) -> dict[Part, tuple[Counter[str], Counter[str]]]:
    """What earlier commands tried; a line that a kill cut off is none."""
    if path is None:
        return {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    path.write_text("".join(lines))
    return {Part(**row["part"]): (Counter(row["outcomes"]), Counter(row["wrong"])) for row in map(json.loads, lines)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(SAMPLES)} (default all)")
    parser.add_argument("--n", type=int, help="inputs of each kind (default a sample)")
    parser.add_argument("--times", type=int, default=1, help="how many such samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, help="a folder for inputs with a wrong outcome")
    parser.add_argument("--log", type=Path, help="a file with what was tried, which is not tried again")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(SAMPLES):
        parser.error(f"no kind {', '.join(sorted(unknown))}; valid: {', '.join(SAMPLES)}")
    samples = {kind: options.n or SAMPLES[kind] for kind in options.kinds or SAMPLES}
    parts = planned(samples, options.times, options.seed, options.start)
    done = read_log(options.log)
    left = [part for part in parts if part not in done]
    if any(part.kind == "recordings" for part in left):
        from tests.recording.forked_walks import walk_in_forks

        walk_in_forks()
    targets: dict[str, Target] = {}
    shown_at = started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marlnb-fuzz-") as folder:
        for n_done, part in enumerate(left):
            if part.kind not in targets:
                Path(folder, part.kind).mkdir()
                targets[part.kind] = make_target(part.kind, Path(folder, part.kind))
            if time.monotonic() - shown_at > PROGRESS_EVERY_S:
                shown_at = time.monotonic()
                left_s = (shown_at - started) / n_done * (len(left) - n_done) if n_done else 0.0
                print(f"{n_done:,} of {len(left):,} parts, {format_duration(left_s)} left", flush=True)
            done[part] = outcomes, wrong = fuzz(targets[part.kind], part, options.keep)
            if options.log is not None:
                with options.log.open("a") as log:
                    log.write(json.dumps({"part": asdict(part), "outcomes": outcomes, "wrong": wrong}) + "\n")
    print(f"in {format_duration(time.monotonic() - started)}:")
    for kind in samples:
        results = [done[part] for part in parts if part.kind == kind]
        outcomes, wrong = (sum(counters, Counter()) for counters in zip(*results))
        total = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
        print(f"{kind}: {outcomes.total():,} inputs of seed {options.seed}: {total}")
        for text, count in wrong.most_common(20):
            print(f"  {count} × {text}")
    return int(any(done[part][1] for part in parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
