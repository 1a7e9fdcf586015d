"""Evolution against its controls at equal steps: does it help, and what is selection alone worth?

Every training has the same number of environment steps, those of all members and of their evaluations included. The
controls: the options' defaults in one training, which has all steps for itself; random search; selection without
mutation; mutation without selection. The score is the mean return of one agent over 500 greedy episodes that no
selection has seen.

Each training's score is written to FOLDER/<env>-<method>-<seed>.json, and complete ones are not trained again. The
table has the interquartile mean over seeds with a 95% bootstrap interval, and the probability that a training scores
higher than one of each control (Agarwal et al. 2021, arXiv:2108.13264); bold where its interval leaves out 0.5. The
intervals are not corrected for the number of comparisons.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch

import marlnb as mnb
from marlnb.analysis.benchmarking.statistics import aggregate, probability_of_improvement
from marlnb.analysis.populations.league_report_result import MIN_SEEDS
from marlnb.disk import write_atomically

EPISODES, FIRST_SEED = 500, 1_000_000  # of the final evaluation
POPULATION, GENERATIONS = 8, 10
DEFAULT = "default"


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        frames: of a whole population, evaluations included.
        overrides: of all methods.
    """

    frames: int
    overrides: tuple[str, ...]


TASKS = {
    "matrix/climbing": Task(
        80_000, ("model.hidden=[32]", "n_envs=32", "rollout_steps=16", "algorithm.minibatch_frames=512")
    ),
    "mpe/simple_spread": Task(
        320_000, ("model.hidden=[64,64]", "n_envs=16", "rollout_steps=25", "algorithm.minibatch_frames=400")
    ),
}
CONTROLS = {
    DEFAULT: "one training with the defaults",
    "random_search": "random search",
    "select_only": "selection without mutation",
    "mutate_only": "mutation without selection",
}
METHODS = {**CONTROLS, "tournament": "tournament", "pbt": "PBT", "mf_pbt": "MF-PBT"}
COMPARED = ("default", "random_search", "select_only")


def overrides_of(env: str, method: str, seed: int, scale: float) -> tuple[str, ...]:
    """The overrides of one training."""
    task, frames = TASKS[env], round(scale * TASKS[env].frames)
    words = (f"env={env}", "algorithm=ippo", "tuned=false", "algorithm.epochs=4", *task.overrides)
    words += (f"frames={frames}", f"seed={seed}", "evaluation_episodes=10", "checkpoint_every=1_000_000")
    if method == DEFAULT:
        return words
    generation = round(frames / POPULATION / GENERATIONS)
    return (
        *words,
        *(f"evolution={method}", f"evolution.population={POPULATION}", f"evolution.generation_frames={generation}"),
    )


def score(env: str, method: str, seed: int, scale: float, folder: Path) -> float:
    """Trains, and plays the fittest member. `folder`: of the run; it is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    experiment = mnb.Experiment.compose(*overrides_of(env, method, seed, scale))
    run = mnb.train(experiment, folder, progress=False)
    result = mnb.evaluate(run, episodes=EPISODES, seed=FIRST_SEED).score
    shutil.rmtree(folder)
    return float(result)


def scores_of(folder: Path, env: str, seeds: list[int]) -> dict[str, dict[int, float]]:
    """By method and seed, the scores of the complete trainings."""
    paths = {(method, seed): score_path(folder, env, method, seed) for method, seed in product(METHODS, seeds)}
    known = {key: json.loads(path.read_text())["score"] for key, path in paths.items() if path.exists()}
    return {method: {seed: known[method, seed] for seed in seeds if (method, seed) in known} for method in METHODS}


def table(folder: Path, envs: list[str], seeds: list[int]) -> str:
    """A line for each task and method, of the seeds that are complete."""
    titles = [f"P(higher than {CONTROLS[control]})" for control in COMPARED]
    lines = [" | ".join(["| env", "method", "seeds", "IQM", *titles]) + " |", "| --- " * (4 + len(titles)) + "|"]
    for env in envs:
        scores = {
            method: np.array(list(by_seed.values()))[:, None]
            for method, by_seed in scores_of(folder, env, seeds).items()
            if by_seed
        }
        if not scores:
            continue
        middle, better = aggregate(scores)["IQM"], probability_of_improvement(scores)
        for method, values in scores.items():
            iqm = middle[method]
            cells = [env, METHODS[method], str(len(values)), f"{iqm.value:.2f} ({iqm.low:.2f} to {iqm.high:.2f})"]
            for control in COMPARED:
                estimate = better.get((method, control))
                shown = "" if estimate is None else f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
                is_shown = estimate and len(values) >= MIN_SEEDS and not estimate.low <= 0.5 <= estimate.high
                cells.append(f"**{shown}**" if is_shown else shown)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def score_path(folder: Path, env: str, method: str, seed: int) -> Path:
    return folder / f"{env.partition('/')[2]}-{method}-{seed}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the environment steps (%(default)s)")
    parser.add_argument("--seeds", type=int, default=8, help="trainings of each (%(default)s)")
    parser.add_argument("--out", default="runs/verify/evolution", metavar="FOLDER")
    parser.add_argument("--table", action="store_true", help="print the table of what is complete, train nothing")
    arguments = parser.parse_args()
    folder, seeds = Path(arguments.out), list(range(arguments.seeds))
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed, env, method in product(seeds, arguments.envs, arguments.methods):
        path = score_path(folder, env, method, seed)
        if not arguments.table and not path.exists():
            value = score(env, method, seed, arguments.scale, folder / "training" / path.stem)
            write_atomically(path, json.dumps({"score": value}))
            print(path, f"{value:.3g}", flush=True)
    print(table(folder, arguments.envs, seeds))


if __name__ == "__main__":
    main()
