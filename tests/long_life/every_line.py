"""Interrupts at every line that runs while worker processes exist: nothing stays, though the traceback lives on.

    python -m tests.long_life.every_line --log build/lines.jsonl

A KeyboardInterrupt is raised at the first and at the last time that each line of some files runs, in a training run, an
evaluation and a recording with worker processes. A notebook keeps the last traceback, and with it every object of the
interrupted frames; so processes have to be ended explicitly. What cannot be closed is the time of single lines: from
the last line of a function that returns an environment to the `with` that closes it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

import marlnb as mnb

PACKAGE = str(Path(mnb.__file__).parent)
FILES = (
    *("envs/workers/pool.py", "envs/parallel.py", "envs/regroup.py", "envs/pettingzoo.py"),
    *("training/trainer.py", "training/train.py", "training/policies/evaluator.py", "training/policies/evaluation.py"),
    *("recording/capture/recorder.py", "recording/capture/preparation.py", "training/learners.py"),
)
OVERRIDES = (
    *("env=pettingzoo/custom", "env.entry_point=tests.envs.sample_envs:Scripted", "env.workers=1", "algorithm=ippo"),
    *("n_envs=2", "rollout_steps=8", "frames=16", "model.hidden=[4]", "evaluate_every=1", "evaluation_episodes=2"),
    "checkpoint_every=1",
)
GRACE_S = 5.0  # until a process that was ended has ended

Position = tuple[str, int]


def work(experiment: mnb.Experiment, folder: Path) -> None:
    run = mnb.train(experiment, folder, progress=False)
    mnb.evaluate(run, episodes=2)
    mnb.record(run, episodes=2, progress=False).close()


def traced(at_line: Callable[[Position], None], call: Callable[[], object]) -> None:
    """Calls a function; each line of FILES that the main thread runs is announced, and may raise."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) or name[len(PACKAGE) + 1 :] not in FILES:
            return None
        if event == "line":
            at_line((name[len(PACKAGE) + 1 :], frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)


def lines_of(call: Callable[[], object]) -> dict[Position, int]:
    """How often each line runs, of those that run while there are worker processes."""
    counts: dict[Position, int] = defaultdict(int)
    traced(lambda position: counts.__setitem__(position, counts[position] + 1), call)
    return counts


def left_after(call: Callable[[], object], position: Position, number: int) -> str:
    """What an interrupt at the n-th time that a line runs leaves; empty: nothing."""
    n, earlier = 0, set(psutil.Process().children(recursive=True))  # as of other tests, such as a logger's service

    def at_line(here: Position) -> None:
        nonlocal n
        if here == position:
            n += 1
            if n == number:
                raise KeyboardInterrupt

    try:
        traced(at_line, call)
    except KeyboardInterrupt as error:
        kept = error  # with its frames, as a notebook has it
        deadline = time.monotonic() + GRACE_S
        while (children := set(psutil.Process().children(recursive=True)) - earlier) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = f"{len(children)} processes" if children else ""
        for child in children:
            child.kill()
            child.wait()
        del kept
        return left
    return "not reached"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long_life.every_line")
    parser.add_argument("--log", type=Path, help="a file with the lines that were tried, which are not tried again")
    parser.add_argument("--files", nargs="*", default=FILES)
    options = parser.parse_args(arguments)
    done: dict[tuple[str, int, int], str] = {}
    if options.log is not None and options.log.exists():
        done = {(row["file"], row["line"], row["number"]): row["left"] for row in map(json.loads, options.log.open())}
    experiment = mnb.Experiment.compose(*OVERRIDES)
    with tempfile.TemporaryDirectory() as folder:
        work(experiment, Path(folder, "warm-up"))
        counts = lines_of(lambda: work(experiment, Path(folder, "counted")))
        attempts = [(*at, k) for at, n in counts.items() for k in dict.fromkeys((1, n)) if at[0] in options.files]
        left = [attempt for attempt in attempts if attempt not in done]
        print(f"{len(attempts)} attempts, {len(left)} left", flush=True)
        for k, (file, line, number) in enumerate(left):
            run = Path(folder, str(k))
            done[file, line, number] = left_processes = left_after(partial(work, experiment, run), (file, line), number)
            if left_processes:
                print(f"{file}:{line}, time {number}: {left_processes}", flush=True)
            if options.log is not None:
                with options.log.open("a") as log:
                    log.write(json.dumps({"file": file, "line": line, "number": number, "left": left_processes}) + "\n")
    problems = [attempt for attempt in attempts if done[attempt] and done[attempt] != "not reached"]
    print(f"{len(attempts)} interrupts, {len(problems)} left processes", flush=True)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
