"""Compares marlnb's IPPO with BenchMARL's on multiwalker and VMAS balance, by return after the same frames.

    python -m benchmarks.verify.same_frames [--tasks balance] [--seeds 0 1] [--longer 4] [--out FOLDER]

Both sides train with the settings of benchmarks/drivers/settings.py, one thread each, one training run after the other,
and play 100 episodes without exploration after each third of the frames; an episode's return is the mean over agents of
their summed rewards. A training run whose result is in FOLDER is not repeated; interrupted ones of marlnb resume, those
of BenchMARL restart. Needs `make bench-peers-setup`. The table is printed and written to FOLDER/table.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks import peers
from benchmarks.contest import check_peers
from benchmarks.drivers.marlnb import overrides
from benchmarks.drivers.settings import on_policy
from benchmarks.table import markdown_table
from marlnb.experiment import Experiment
from marlnb.training.train import train

FRAMES = {"balance": 90_000, "multiwalker": 60_000}
EVALUATIONS, EPISODES = 3, 100
Curve = list[tuple[int, float]]


def words(task: str, seed: int, frames: int) -> list[str]:
    """Overrides of marlnb's training, in Hydra's grammar."""
    iterations = frames // EVALUATIONS // on_policy(task).frames
    return [
        *overrides(task, "ippo", updates=1, threads=1),
        f"frames={frames}",
        f"seed={seed}",
        f"evaluate_every={iterations}",
        f"evaluation_episodes={EPISODES}",
        "checkpoint_every=10",
        *(["env.workers=0"] if task == "multiwalker" else []),
    ]


def ours(task: str, seed: int, frames: int, out: Path) -> Curve:
    run = train(Experiment.compose(*words(task, seed, frames)), out / f"{task}-{frames}-marlnb-{seed}", resume=True)
    return [(row["frames"], fmean(map(fmean, row["returns"].values()))) for row in run.evaluations()]


def theirs(task: str, seed: int, frames: int, out: Path) -> Curve:
    file = out / f"{task}-{frames}-benchmarl-{seed}.json"
    if not file.exists():
        sizes = ("--frames", frames, "--evaluations", EVALUATIONS, "--episodes", EPISODES)
        script = "benchmarks.verify.benchmarl_training"
        peers.run_script(peers.BENCHMARL, script, task, seed, file.absolute(), *sizes)
    return [(seen, fmean(returns)) for seen, returns in json.loads(file.read_text())]


SIDES: dict[str, Callable[[str, int, int, Path], Curve]] = {"marlnb": ours, "BenchMARL": theirs}


def table(curves_of: dict[tuple[str, str], dict[int, Curve]]) -> str:
    """A line for each task and side: the mean return of one agent at every evaluation, by seed."""
    rows = []
    for (task, side), curves in curves_of.items():
        last = ", ".join(f"{seed}: {curve[-1][1]:.2f}" for seed, curve in curves.items())
        before = "; ".join(
            f"{seed}: " + ", ".join(f"{score:.2f} at {frames:,}" for frames, score in curve[:-1])
            for seed, curve in curves.items()
        )
        frames = max(curve[-1][0] for curve in curves.values())
        rows.append((task, f"{frames:,}", side, last, before))
    return markdown_table(("task", "frames", "trained by", "at the end, by seed", "before, by seed"), rows) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=sorted(FRAMES), default=sorted(FRAMES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--longer", type=int, default=1, metavar="N", help="times as many frames")
    parser.add_argument("--out", type=Path, default=Path("runs/same_frames"), metavar="FOLDER")
    arguments = parser.parse_args(argv)
    check_peers(peers.BENCHMARL)
    arguments.out.mkdir(parents=True, exist_ok=True)
    curves: dict[tuple[str, str], dict[int, Curve]] = {}
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for side, curve in SIDES.items():
                curves.setdefault((task, side), {})[seed] = curve(
                    task, seed, arguments.longer * FRAMES[task], arguments.out
                )
                shown = table(dict(sorted(curves.items())))
                (arguments.out / "table.md").write_text(shown)
    print(shown)


if __name__ == "__main__":
    main()
