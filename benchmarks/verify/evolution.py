"""Evolution against its controls at equal steps: does it help, and what is selection alone worth?

Every training run has the same number of environment steps, those of all members and of their evaluations included. The
controls: the options' defaults in one training run, which has all steps for itself; random search; selection without
mutation; mutation without selection. The score is the mean return of one agent over 500 greedy episodes that no
selection has seen. On speaker_listener, marlnb's MADDPG with the settings of AgileRL's multi-agent tutorial meets
AgileRL's own training run (`make bench-peers-setup`), whose elite is scored before its last mutation.

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
from benchmarks import peers
from benchmarks.drivers.settings import EVOLUTION
from benchmarks.table import markdown_table
from marlnb.analysis.benchmarking.statistics import aggregate, probability_of_improvement
from marlnb.analysis.populations.league_report_result import MIN_SEEDS
from marlnb.disk import write_atomically

EPISODES, FIRST_SEED = 500, 1_000_000  # of the final evaluation
GENERATIONS = 10
DEFAULT, AGILERL, AGILERL_ITSELF = "default", "agilerl", "agilerl_itself"
CONTROLS = {
    DEFAULT: "one training run with the defaults",
    "random_search": "random search",
    "select_only": "selection without mutation",
    "mutate_only": "mutation without selection",
}
KINDS = {**CONTROLS, "tournament": "tournament", "pbt": "PBT", "mf_pbt": "MF-PBT"}
METHODS = {**KINDS, AGILERL: "evolution=agilerl", AGILERL_ITSELF: "AgileRL 2.58.0"}
COMPARED = ("default", "random_search", "select_only")


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        frames: of a whole population, evaluations included.
        generation_frames: of each member between two selections, of which there are about `GENERATIONS`.
        overrides: of all methods.
        population: members.
        evaluation_episodes: of each member at the end of a generation.
        of_populations: overrides of the methods with a population.
        methods: that are compared.
    """

    frames: int
    generation_frames: int
    overrides: tuple[str, ...]
    population: int = 8
    evaluation_episodes: int = 10
    of_populations: tuple[str, ...] = ()
    methods: tuple[str, ...] = tuple(KINDS)


IPPO = ("algorithm=ippo", "algorithm.epochs=4")
TUTORIAL = (
    *("algorithm=maddpg", f"algorithm.batch_size={EVOLUTION.batch_size}", f"algorithm.updates={EVOLUTION.updates}"),
    *(
        f"algorithm.lr={EVOLUTION.lr_actor}",
        f"algorithm.lr_critic={EVOLUTION.lr_critic}",
        "algorithm.learning_starts=0",
    ),
    *(f"algorithm.gamma={EVOLUTION.gamma}", f"algorithm.tau={EVOLUTION.tau}", "algorithm.buffer_frames=100_000"),
    *("algorithm.noise_kind=ornstein_uhlenbeck", "algorithm.noise=0.1", "model.activation=relu"),
    *(f"model.hidden=[{','.join(map(str, EVOLUTION.hidden))}]", f"n_envs={EVOLUTION.n_envs}"),
    *(f"rollout_steps={EVOLUTION.rollout_steps}", "env.kwargs.continuous_actions=true", "env.workers=1"),
)
TASKS = {
    "matrix/climbing": Task(
        80_000, 1_000, (*IPPO, "model.hidden=[32]", "n_envs=32", "rollout_steps=16", "algorithm.minibatch_frames=512")
    ),
    "mpe/simple_spread": Task(
        320_000,
        4_000,
        (*IPPO, "model.hidden=[64,64]", "n_envs=16", "rollout_steps=25", "algorithm.minibatch_frames=400"),
    ),
    "pettingzoo/simple_speaker_listener": Task(
        31_040,
        576,
        TUTORIAL,
        population=EVOLUTION.population,
        evaluation_episodes=EVOLUTION.n_envs,
        of_populations=("evolution.together=true", "evolution.shared_replay=true"),
        methods=(*KINDS, AGILERL, AGILERL_ITSELF),
    ),
}


def overrides_of(env: str, method: str, seed: int, scale: float) -> tuple[str, ...]:
    """The overrides of one training run of marlnb."""
    task = TASKS[env]
    words = (f"env={env}", *task.overrides, "tuned=false", f"frames={round(scale * task.frames)}", f"seed={seed}")
    words += (f"evaluation_episodes={task.evaluation_episodes}", "checkpoint_every=1_000_000")
    if method == DEFAULT:
        return words
    return (
        *words,
        *(f"evolution={method}", f"evolution.population={task.population}", *task.of_populations),
        f"evolution.generation_frames={round(scale * task.generation_frames)}",
    )


def score(env: str, method: str, seed: int, scale: float, folder: Path) -> float:
    """Trains, and plays the fittest member. `folder`: of the run; it is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    if method == AGILERL_ITSELF:
        return score_of_agilerl(seed, round(scale * TASKS[env].generation_frames), folder)
    experiment = mnb.Experiment.compose(*overrides_of(env, method, seed, scale))
    run = mnb.train(experiment, folder, progress=False)
    result = mnb.evaluate(run, episodes=EPISODES, seed=FIRST_SEED).score
    shutil.rmtree(folder)
    return float(result)


def score_of_agilerl(seed: int, generation_frames: int, folder: Path) -> float:
    """AgileRL's training with the same number of generations, and of frames in each."""
    folder.mkdir(parents=True)
    file: Path = folder.absolute() / "score.json"
    sizes = ("--generations", GENERATIONS, "--generation-frames", generation_frames, "--episodes", EPISODES)
    script = "benchmarks.verify.agilerl_training"
    peers.run_script(peers.AGILERL, script, seed, file, *sizes, "--first-seed", FIRST_SEED)
    result = json.loads(file.read_text())["score"]
    shutil.rmtree(folder)
    return float(result)


def scores_of(folder: Path, env: str, seeds: list[int]) -> dict[str, dict[int, float]]:
    """By method and seed, the scores of the complete training runs."""
    paths = {(method, seed): score_path(folder, env, method, seed) for method, seed in product(METHODS, seeds)}
    known = {key: json.loads(path.read_text())["score"] for key, path in paths.items() if path.exists()}
    return {method: {seed: known[method, seed] for seed in seeds if (method, seed) in known} for method in METHODS}


def table(folder: Path, envs: list[str], seeds: list[int]) -> str:
    """A line for each task and method, of the seeds that are complete."""
    titles = [f"P(higher than {CONTROLS[control]})" for control in COMPARED]
    rows = []
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
            rows.append(cells)
    return markdown_table(("env", "method", "seeds", "IQM", *titles), rows)


def score_path(folder: Path, env: str, method: str, seed: int) -> Path:
    return folder / f"{env.partition('/')[2]}-{method}-{seed}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the environment steps (%(default)s)")
    parser.add_argument("--seeds", type=int, default=8, help="training runs of each (%(default)s)")
    parser.add_argument("--out", default="runs/verify/evolution", metavar="FOLDER")
    parser.add_argument("--table", action="store_true", help="print the table of what is complete, train nothing")
    arguments = parser.parse_args()
    folder, seeds = Path(arguments.out), list(range(arguments.seeds))
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    has_agilerl = peers.python(peers.AGILERL).exists()
    if not has_agilerl:
        print("without AgileRL itself, which `make bench-peers-setup` installs")
    for seed, env, method in product(seeds, arguments.envs, arguments.methods):
        if method not in TASKS[env].methods or (method == AGILERL_ITSELF and not has_agilerl):
            continue
        path = score_path(folder, env, method, seed)
        if not arguments.table and not path.exists():
            value = score(env, method, seed, arguments.scale, folder / "training" / path.stem)
            write_atomically(path, json.dumps({"score": value}))
            print(path, f"{value:.3g}", flush=True)
    print(table(folder, arguments.envs, seeds))


if __name__ == "__main__":
    main()
