"""The evaluations of a benchmark's run, and the longer final evaluation of its best policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from marlnb.analysis.benchmarking.marl_eval import RETURN, EvaluatedRun
from marlnb.batch.benchmark.spec import ABSOLUTE_FACTOR, PlannedRun
from marlnb.errors import RunError
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.files import read_json, write_atomically
from marlnb.training.runs.run import Run

ABSOLUTE = "absolute.json"  # marl-eval's word for the final evaluation

Returns = Mapping[str, Sequence[float | None]]


def is_complete(folder: Path) -> bool:
    """Whether a run has been trained to its end and has its final evaluation."""
    return (folder / ABSOLUTE).is_file() and Run.open(folder).status()["state"] == "complete"


def evaluate_final(run: Run) -> None:
    """Plays ten times the usual episodes with the best checkpoint and new seeds; writes the returns to `absolute.json`.

    Raises:
        CheckpointError: the run has no checkpoint with a score.
    """
    experiment = run.experiment
    episodes = ABSOLUTE_FACTOR * experiment.evaluation_episodes
    result = evaluate(run, episodes=episodes, seed=derive_seed(experiment.seed, "absolute"), checkpoint="best")
    assert result.table is not None
    content = {"checkpoint": result.checkpoint, "seed": result.seed, "returns": result.table.to_json()}
    write_atomically(run.path / ABSOLUTE, json.dumps(content) + "\n")


def measured(planned: PlannedRun, folder: Path) -> EvaluatedRun:
    """The evaluations of a complete run.

    Raises:
        RunError: it has no evaluations.
    """
    rows = Run.open(folder).evaluations()
    if not rows:
        raise RunError(f"the run {folder} has no evaluations; set evaluate_every and train it again")
    metrics = [metrics_of(row["returns"]) for row in rows]
    return EvaluatedRun(
        task=planned.task,
        algorithm=planned.algorithm,
        seed=planned.seed,
        frames=tuple(int(row["frames"]) for row in rows),
        seconds=tuple(float(row["seconds"]) for row in rows),
        metrics={name: tuple(values[name] for values in metrics) for name in metrics[0]},
        absolute=metrics_of(read_json(folder / ABSOLUTE)["returns"]),
    )


def metrics_of(returns: Returns) -> dict[str, tuple[float, ...]]:
    """BenchMARL's names: `<group>_return` for each group, and `return`, the mean over groups; `[episode]` each."""
    groups = {group: tuple(nan if value is None else value for value in values) for group, values in returns.items()}
    mean = tuple(sum(values) / len(groups) for values in zip(*groups.values()))
    return {**{f"{group}_return": values for group, values in groups.items()}, RETURN: mean}


def means_of(returns: Returns) -> dict[str, Any]:
    """The mean over episodes of each metric."""
    return {name: sum(values) / len(values) for name, values in metrics_of(returns).items()}
