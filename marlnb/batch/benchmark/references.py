"""Reference levels of each task: a random policy's return, and what scripted policies reach where they are known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from marlnb.analysis.benchmarking.comparison import RANDOM
from marlnb.analysis.benchmarking.marl_eval import RETURN
from marlnb.batch.benchmark.results import means_of
from marlnb.batch.benchmark.spec import ABSOLUTE_FACTOR, PlannedRun
from marlnb.codec import to_json
from marlnb.experiment import Experiment
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.evaluation import MAX_ENVS, score_policies
from marlnb.training.runs.files import read_json, write_atomically

FILE = "references.json"


def find_references(folder: Path, runs: Iterable[PlannedRun]) -> dict[str, dict[str, dict[str, float]]]:
    """Levels `found[task][metric][name]`, in units of reward; what was measured before is read from `references.json`.

    The environment of a task is that of its first run: where algorithms change its options, theirs are other tasks.
    """
    kept = read_json(folder / FILE) if (folder / FILE).exists() else {}
    first = {run.task: run for run in reversed(list(runs))}
    for task, run in first.items():
        env = to_json(run.experiment.env)
        if kept.get(task, {}).get("env") != env:
            kept[task] = {"env": env, "levels": _measure(run.experiment)}
            write_atomically(folder / FILE, json.dumps(kept, indent=1) + "\n")
    return {task: kept[task]["levels"] for task in first}


def levels_of(references: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str) -> dict[str, dict[str, float]]:
    """By task, the named levels of one metric."""
    return {task: dict(levels.get(metric, {})) for task, levels in references.items()}


def _measure(experiment: Experiment) -> dict[str, dict[str, float]]:
    """The levels of one environment by metric; of `return`, the known ones where the environment has such."""
    measured: dict[str, dict[str, float]] = {
        name: {RANDOM: value} for name, value in _random_returns(experiment).items()
    }
    measured[RETURN] |= known_levels(experiment.env)
    return measured


def _random_returns(experiment: Experiment) -> dict[str, Any]:
    """Means over as many episodes as a run's last evaluation plays, each action drawn uniformly."""
    episodes = ABSOLUTE_FACTOR * experiment.evaluation_episodes
    copies = min(experiment.n_envs, MAX_ENVS, episodes)
    with experiment.env.build(copies, "cpu") as env:
        policies = {group.name: RandomPolicy(group) for group in env.spec.groups}
        seed = derive_seed(0, "references")
        return means_of(score_policies(env, policies, episodes=episodes, seed=seed, explore=True).to_json())


def known_levels(env: Any) -> dict[str, float]:
    """MPE's table of reference returns, where it holds this environment with these options."""
    from marlnb.envs.mpe.scripted import REFERENCE_RETURNS, references

    return next((dict(REFERENCE_RETURNS[name]) for name, (config, _) in references().items() if config == env), {})
