"""Reference returns of each task: of a random policy, and of scripted policies where they are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marlnb.analysis.benchmarking.comparison import RANDOM
from marlnb.analysis.benchmarking.marl_eval import RETURN
from marlnb.batch.benchmark.results import means_of
from marlnb.batch.benchmark.spec import ABSOLUTE_FACTOR
from marlnb.codec import to_json
from marlnb.experiment import Experiment
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.specs import derive_seed
from marlnb.training.policies.evaluation import MAX_EVALUATION_ENVS, score_policies
from marlnb.training.runs.files import read_json, write_atomically
from marlnb.trust import loaded

FILE = "references.json"


def find_references(folder: Path, experiments: Mapping[str, Experiment]) -> dict[str, dict[str, dict[str, float]]]:
    """Levels `[task][metric][name]`, in units of reward; `references.json` caches them.

    Args:
        experiments: one run of each task; algorithms that change its environment's options need a task of their own.
    Raises:
        TrustError: an environment has to be measured that names code which the user does not trust.
    """
    cached = read_json(folder / FILE) if (folder / FILE).exists() else {}
    for task, experiment in experiments.items():
        env = to_json(experiment.env)
        if cached.get(task, {}).get("env") != env:
            cached[task] = {"env": env, "levels": _measure(experiment)}
            write_atomically(folder / FILE, json.dumps(cached, indent=1) + "\n")
    return {task: cached[task]["levels"] for task in experiments}


def levels_of(references: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str) -> dict[str, dict[str, float]]:
    """The named levels of one metric, by task."""
    return {task: dict(levels.get(metric, {})) for task, levels in references.items()}


def _measure(experiment: Experiment) -> dict[str, dict[str, float]]:
    """The levels of one environment by metric; `return` includes the known levels of scripted policies.

    Where groups are rewarded differently there is no `return`.

    The random level is the mean return over as many episodes as a run's final evaluation.
    """
    episodes = ABSOLUTE_FACTOR * experiment.evaluation_episodes
    n_envs = min(experiment.n_envs, MAX_EVALUATION_ENVS, episodes)
    with loaded(experiment.env, "env").build(n_envs, "cpu") as env:
        policies = {group.name: RandomPolicy(group) for group in env.spec.groups}
        seed = derive_seed(0, "references")
        means = means_of(score_policies(env, policies, episodes=episodes, seed=seed, explore=True).to_json())
    levels: dict[str, dict[str, float]] = {name: {RANDOM: mean} for name, mean in means.items()}
    if RETURN in levels:
        levels[RETURN] |= known_levels(experiment.env)
    return levels


def known_levels(env: Any) -> dict[str, float]:
    """Reference returns of an MPE environment with these options; empty if there are none."""
    from marlnb.envs.mpe.scripted import REFERENCE_RETURNS, references

    return next((dict(REFERENCE_RETURNS[name]) for name, (config, _) in references().items() if config == env), {})
