"""Eight seeds together against the same seeds alone: final scores, paired by seed.

One update together equals one alone up to rounding, which the tests check. After many updates, rounding has made other
training runs of them, so this compares their final scores: the mean difference and its 95% interval (t, over the
seeds). It is reached if the interval holds 0, and its half-width says how large a difference would have been seen.
Complete runs in FOLDER are not trained again, interrupted ones resume.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.table import markdown_row, markdown_table
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.training.runs.run import Run

TASKS = {
    "ippo on simple_spread": (
        *("env=mpe/simple_spread", "algorithm=ippo", "frames=200_000", "n_envs=8", "rollout_steps=32"),
        *("algorithm.epochs=4", "algorithm.minibatch_frames=64", "algorithm.lr=1e-3"),
    ),
    "maddpg on simple_speaker_listener": (
        *("env=mpe/simple_speaker_listener", "algorithm=maddpg", "frames=100_000", "n_envs=8", "rollout_steps=25"),
        *("algorithm.updates=20", "algorithm.batch_size=128", "algorithm.gamma=0.9", "algorithm.lr=2e-3"),
        *("algorithm.tau=0.02", "algorithm.learning_starts=2_000", "algorithm.buffer_frames=100_000"),
    ),
}
COMMON = ("tuned=false", "model.hidden=[64,64]", "evaluation_episodes=200")


def scores(folder: Path, words: Sequence[str], seeds: range, how: Sequence[str]) -> list[float]:
    """The final score of each seed: the mean over groups of the evaluation's return."""
    command = [sys.executable, "-m", "marlnb", "train", *words, *COMMON, *how, f"run={folder}", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    by_seed = [Run.open(folder / f"seed={seed}").status()["scores"]["greedy"] for seed in seeds]
    return [float(np.mean(list(score.values()) if isinstance(score, dict) else score)) for score in by_seed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/verify-together"), metavar="FOLDER", help="%(default)s")
    parser.add_argument("--seeds", type=int, default=8, help="%(default)s")
    parser.add_argument("--frames", type=int, help="of each training run (default: by task)")
    arguments = parser.parse_args()
    seeds, all_reached = range(arguments.seeds), True
    print(markdown_table(("training", "together", "alone", "difference, 95% interval", ""), ()))
    for task, words in TASKS.items():
        if arguments.frames:
            words = (*words, f"frames={arguments.frames}")
        folder = arguments.out / task.replace(" ", "-")
        together = scores(folder / "together", words, seeds, [f"seeds={len(seeds)}", "--jobs", "1"])
        alone = scores(folder / "alone", words, seeds, [f"seed=0..{len(seeds) - 1}", "--jobs", "2"])
        result = paired_test(np.subtract(together, alone))
        reached = result.low <= 0 <= result.high
        all_reached &= reached
        difference = f"{result.mean:+.2f} ({result.low:+.2f} to {result.high:+.2f})"
        means = (f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" for values in (together, alone))
        cells = (f"{task}, {len(seeds)} seeds", *means, difference, "equal" if reached else "**differ**")
        print(markdown_row(cells), flush=True)
    return 0 if all_reached else 1


if __name__ == "__main__":
    sys.exit(main())
