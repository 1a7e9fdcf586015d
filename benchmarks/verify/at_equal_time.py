"""Compares what the names alone reach with BenchMARL's defaults and JaxMARL's published settings, after equal time.

    python -m benchmarks.verify.at_equal_time [--tasks simple_spread] [--seconds 60] [--seeds 0 1 2] [--out FOLDER]

Each side trains for `--seconds` of CPU time in one thread, without imports, set-up and compiling, and then plays
`--episodes` episodes without exploration in its own environment; a score is the mean return of one agent. BenchMARL
stops in the middle of an update if need be. A training run whose score is in FOLDER/scores.jsonl is not repeated. The
table is printed and written to FOLDER/table.md. Needs `make bench-peers-setup`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.contest import check_peers
from benchmarks.table import markdown_table
from benchmarks.tune.curve import learning_curve, warm_up
from benchmarks.tune.journal import append_line
from benchmarks.tune.scoring import objective, scores
from benchmarks.tune.spaces import in_one_thread
from marlnb.experiment import Experiment
from marlnb.training.runs.files import read_lines

MARLNB, BENCHMARL, JAXMARL = "marlnb", "BenchMARL's defaults", "JaxMARL's published settings"
ENVS = {
    "simple_spread": "mpe/simple_spread",
    "balance": "vmas/balance",
    "navigation": "vmas/navigation",
    "multiwalker": "pettingzoo/multiwalker",
}
SIDES = (
    *(("simple_spread", "ippo", side) for side in (MARLNB, BENCHMARL, JAXMARL)),
    *(("simple_spread", algorithm, side) for algorithm in ("mappo", "maddpg", "qmix") for side in (MARLNB, BENCHMARL)),
    *((task, "ippo", side) for task in ("balance", "navigation", "multiwalker") for side in (MARLNB, BENCHMARL)),
)
SCRIPTS = {BENCHMARL: (peers.BENCHMARL, "benchmarl_defaults"), JAXMARL: (peers.JAXMARL, "jaxmarl_published")}
HEADER = ("task", "algorithm", "trained by", "random actions", "score", "frames")

Row = dict[str, Any]


def ours(task: str, algorithm: str, seed: int, seconds: float, episodes: int) -> Row:
    """The score of `env=E algorithm=A` with no other option but the seed."""
    env = ENVS[task]
    experiment = Experiment.compose(f"env={env}", f"algorithm={algorithm}", f"seed={seed}", *in_one_thread(env))
    warm_up(experiment)
    (point,) = learning_curve(experiment, [seconds], clock="cpu", episodes=episodes)
    random = objective(env, scores(experiment, None, episodes=episodes, explore=True))
    return {"random": random, "score": objective(env, point.greedy), "frames": point.frames}


def theirs(side: str, task: str, algorithm: str, seed: int, seconds: float, episodes: int) -> Row:
    """The score that a script of a peer's own Python writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "score.json"
        words = (task, algorithm, seed, file, "--seconds", seconds, "--episodes", episodes)
        peer, script = SCRIPTS[side]
        peers.run_script(peer, f"benchmarks.verify.{script}", *words)
        row: Row = json.loads(file.read_text())
        return row


def measure(tasks: Sequence[str], seeds: Sequence[int], seconds: float, episodes: int, out: Path) -> None:
    """Trains what OUT/scores.jsonl lacks, all sides with the first seed first."""
    file = out / "scores.jsonl"
    for seed in seeds:
        for task, algorithm, side in SIDES:
            key = {"task": task, "algorithm": algorithm, "side": side, "seed": seed, "seconds": seconds}
            if task not in tasks or any(key.items() <= row.items() for row in read_lines(file)):
                continue
            training = (task, algorithm, seed, seconds, episodes)
            row = ours(*training) if side == MARLNB else theirs(side, *training)
            append_line(file, {**key, **row})
            print(f"{task} {algorithm}, {side}, seed {seed}: {row['score']:.2f}", file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """A line for each task, algorithm and side: the median over seeds, and the scores by seed."""
    lines = []
    for key in dict.fromkeys((row["task"], row["algorithm"], row["side"]) for row in rows):
        same = [row for row in rows if (row["task"], row["algorithm"], row["side"]) == key]
        values = [row["score"] for row in same]
        by_seed = f" ({', '.join(f'{value:.1f}' for value in values)})" if len(values) > 1 else ""
        frames = median(row["frames"] for row in same)
        score = f"{median(values):.1f}{by_seed}"
        lines.append((*key, f"{same[0]['random']:.1f}", score, f"{frames:,.0f}"))
    return markdown_table(HEADER, lines) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verify.at_equal_time",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", nargs="+", choices=list(ENVS), default=list(ENVS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU-seconds of each training run (%(default)s)")
    parser.add_argument("--episodes", type=int, default=100, help="that are played after it (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/at_equal_time"), metavar="FOLDER")
    arguments = parser.parse_args(words)
    check_peers(peers.BENCHMARL)
    if "simple_spread" in arguments.tasks:
        check_peers(peers.JAXMARL)
    measure(arguments.tasks, arguments.seeds, arguments.seconds, arguments.episodes, arguments.out)
    rows = [row for row in read_lines(arguments.out / "scores.jsonl") if row["seconds"] == arguments.seconds]
    (arguments.out / "table.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
