"""Populations against what else can train them.

Eight IPPO training runs on native simple_spread: together in one batched product, against eight processes. Wall-clock
seconds of whole commands, starts included, on two cores that all share:

- eight processes: `marlnb train seed=0..7 --jobs 8`, each with one thread; also `--jobs 2`, two at a time
- together: `marlnb train seeds=8`, by default a batch of four seeds on each core; also `--jobs 1`, all in one process

The commands take turns. Two settings: small minibatches (64 frames of 3 agents, 192 rows), where starting operations
costs more than computing them, and the tuned settings of MPE (800 frames, 2,400 rows), where it does not. Target: 0.5
times the eight processes.

Four MADDPG members with evolution on PettingZoo's speaker_listener, against AgileRL with the settings of its
multi-agent tutorial (`--settings agilerl`): frames per second by the clock on two cores. The two take turns by whole
generations, with evaluation, selection and mutation. Both step mpe2 in worker processes. Target: 4 times AgileRL.
Members one after the other, and native MPE, are measured too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import peers
from benchmarks.contest import Contestant, check_peers, measure
from benchmarks.table import Row, report

N_TRAININGS = 8
N_CORES = 2
TARGET = 0.5
AGILERL_TARGET = 4.0
SETTINGS = {
    "small": ("tuned=false", "n_envs=8", "rollout_steps=32", "algorithm.epochs=4", "algorithm.minibatch_frames=64"),
    "tuned": (),
}
FRAMES = {"small": 51_200, "tuned": 192_000}
EIGHT = "eight processes"
COMMANDS = {
    EIGHT: (f"seed=0..{N_TRAININGS - 1}", "--jobs", str(N_TRAININGS)),
    "two processes at a time": (f"seed=0..{N_TRAININGS - 1}", "--jobs", "2"),
    "together": (f"seeds={N_TRAININGS}",),
    "together, one process": (f"seeds={N_TRAININGS}", "--jobs", "1"),
}


def seconds_of(setting: str, command: str, frames: int, folder: Path) -> float:
    """Wall-clock seconds of a command on two cores."""
    words = [sys.executable, "-m", "marlnb", "train", "env=mpe/simple_spread", "algorithm=ippo", *SETTINGS[setting]]
    words += [f"frames={frames}", *COMMANDS[command], f"run={folder}", "--quiet"]
    cores = sorted(os.sched_getaffinity(0))[:N_CORES]
    start = time.perf_counter()
    subprocess.run(
        words,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return time.perf_counter() - start


def measure_seeds(setting: str, repetitions: int, frames: int) -> list[Row]:
    spent: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for repetition in range(repetitions):
        for command in sorted(COMMANDS, reverse=bool(repetition % 2)):
            with tempfile.TemporaryDirectory() as folder:
                spent[command].append(seconds_of(setting, command, frames, Path(folder) / "runs"))
    return [
        Row(command, tuple(values), "s")
        if command == EIGHT
        else Row(command, tuple(values), "s", EIGHT, target=TARGET if "together" in command else None, at_most=True)
        for command, values in spent.items()
    ]


def against_agilerl(repetitions: int) -> None:
    check_peers(peers.AGILERL)
    peer = Contestant("AgileRL", "agilerl_evolution", n_cores=N_CORES)
    alone = Contestant("one after the other", "marlnb_evolution", n_cores=N_CORES, options=("--alone",))
    together = Contestant("marlnb, together", "marlnb_evolution", n_cores=N_CORES)
    title = "Four MADDPG members with evolution on speaker_listener, two cores"
    rows = measure((peer, together), "speaker_listener", "wall_s", repetitions, AGILERL_TARGET)
    report("evolution-agilerl", title, rows)
    for task in ("speaker_listener", "native"):
        report(f"evolution-{task}", f"{title}, {task}", measure((alone, together), task, "wall_s", repetitions, None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = (*SETTINGS, "agilerl")
    parser.add_argument("--settings", nargs="+", choices=choices, default=choices)
    parser.add_argument("--repetitions", type=int, default=3, help="times that each command runs")
    parser.add_argument("--frames", type=int, help="frames of each training run (default: by setting)")
    arguments = parser.parse_args()
    if "agilerl" in arguments.settings:
        against_agilerl(arguments.repetitions)
    for setting in (name for name in arguments.settings if name in SETTINGS):
        frames = arguments.frames or FRAMES[setting]
        rows = measure_seeds(setting, arguments.repetitions, frames)
        title = f"{N_TRAININGS} IPPO runs of {frames:,} frames on simple_spread, {setting} minibatches, two cores"
        report(f"evolution-{setting}", title, rows)


if __name__ == "__main__":
    main()
