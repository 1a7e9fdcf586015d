"""The evaluations of a benchmark's run, and the longer final evaluation of its best policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

from marlnb.analysis.benchmarking.marl_eval import RETURN, EvaluatedRun
from marlnb.batch.benchmark.spec import ABSOLUTE_FACTOR, BenchmarkRun
from marlnb.batch.trainings.launch import End, finish_training
from marlnb.codec import to_json
from marlnb.errors import ConfigError, RunError
from marlnb.specs import derive_seed
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.reporting.report import Report
from marlnb.training.runs.checkpoints.checkpoint import competing_groups
from marlnb.training.runs.files import EVALUATIONS, write_atomically
from marlnb.training.runs.records import checked_record, read_record
from marlnb.training.runs.run import Run
from marlnb.training.shared_return import earn_differently

ABSOLUTE = "absolute.json"  # marl-eval's word for the final evaluation

Returns = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class _Evaluation:
    """What is read of a row of `evaluations.jsonl`."""

    frames: int
    seconds: float
    returns: Returns

    def __post_init__(self) -> None:
        _check_returns(self.returns)


@dataclass(frozen=True)
class _FinalEvaluation:
    """What `absolute.json` holds."""

    checkpoint: int
    seed: int
    returns: Returns

    def __post_init__(self) -> None:
        _check_returns(self.returns)


def _check_returns(returns: Returns) -> None:
    if not returns or not all(returns.values()):
        raise ConfigError("returns must have a return of each episode for each group")


def is_complete(folder: Path) -> bool:
    """Whether a run has been trained to its end and has its final evaluation."""
    return (folder / ABSOLUTE).is_file() and Run.open(folder).status()["state"] == "complete"


def finish(run: Run, on_report: Sequence[Callable[[Report], None]] = ()) -> End:
    """Trains a run to its end and makes its final evaluation; skips what is already done."""
    end = finish_training(run, on_report)
    if end == "complete":
        evaluate_if_missing(run)
    return end


def evaluate_if_missing(run: Run) -> None:
    """`evaluate_final` of a complete run that has none."""
    if not is_complete(run.path):
        evaluate_final(run)


def evaluate_final(run: Run) -> None:
    """Plays ten times the usual episodes with the best checkpoint and new seeds; writes the returns to `absolute.json`.

    Where groups are rewarded differently, as hunters and prey, no checkpoint is best for all: it is the last.

    Raises:
        CheckpointError: the run has no checkpoint with a return.
    """
    experiment, which = run.experiment, "last" if competing_groups(run.checkpoints) else "best"
    episodes = ABSOLUTE_FACTOR * experiment.evaluation_episodes
    result = evaluate(run, episodes=episodes, seed=derive_seed(experiment.seed, "absolute"), checkpoint=which)
    assert result.checkpoint is not None
    content = _FinalEvaluation(result.checkpoint, result.seed, result.table.to_json())
    write_atomically(run.path / ABSOLUTE, json.dumps(to_json(content)) + "\n")


def measured(planned: BenchmarkRun, folder: Path) -> EvaluatedRun:
    """The evaluations of a complete run.

    Raises:
        RunError: it has no evaluations, or one of its files is damaged.
    """
    rows = Run.open(folder).evaluations()
    if not rows:
        raise RunError(f"the run {folder} has no evaluations; set evaluate_every and train it again")
    wanted = ("frames", "seconds", "returns")
    evaluations = [
        checked_record(
            {name: row[name] for name in wanted if name in row}, _Evaluation, f"{folder / EVALUATIONS}, line {number},"
        )
        for number, row in enumerate(rows, 1)
    ]
    metrics = [metrics_of(evaluation.returns) for evaluation in evaluations]
    names = [name for name in metrics[0] if all(name in values for values in metrics)]
    return EvaluatedRun(
        task=planned.task,
        algorithm=planned.algorithm,
        seed=planned.seed,
        frames=tuple(evaluation.frames for evaluation in evaluations),
        seconds=tuple(evaluation.seconds for evaluation in evaluations),
        metrics={name: tuple(values[name] for values in metrics) for name in names},
        absolute=metrics_of(read_record(folder / ABSOLUTE, _FinalEvaluation).returns),
    )


def metrics_of(returns: Returns) -> dict[str, tuple[float, ...]]:
    """BenchMARL's names, `[episode]` each: `<group>_return`, and `return` where all groups share their reward."""
    groups = {group: tuple(nan if value is None else value for value in values) for group, values in returns.items()}
    metrics = {f"{group}_return": values for group, values in groups.items()}
    if earn_differently({group: sum(values) / len(values) for group, values in groups.items()}):
        return metrics
    return {**metrics, RETURN: next(iter(groups.values()))}


def means_of(returns: Returns) -> dict[str, Any]:
    """The mean over episodes of each metric."""
    return {name: sum(values) / len(values) for name, values in metrics_of(returns).items()}
