"""Compare the training runs of a batch: which can be compared, their returns, and why others are excluded."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from marlnb.display.formatting import count, format_number
from marlnb.errors import BatchError, unknown
from marlnb.training.runs.files import EXPERIMENT, METRICS
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Run
from marlnb.training.shared_return import earn_differently

NOTEBOOK = Path(__file__).with_name("compare.ipynb")
SEED = "seed"
ALL = "all runs"
LAST_SHARE = 0.1  # without evaluations, a score is the mean return of this last share of the training
MAX_LABEL_LENGTH = 40
_WORD = re.compile(r"[^\W_][\w ./:+-]*|[./][\w./:+-]+")
Measure = Literal["evaluation", "training"]
MEASURES = ("evaluation", "training")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult:
    """One training run of a job.

    Attributes:
        job: name of the job.
        swept: the job's values of the sweep's axes.
        task: name of the environment, with the run's subfolder if it is not the job's folder, and with `group`.
        group: whose returns these are, where groups are rewarded differently; None: those of all agents.
        run: the run.
        state: its state, from `Run.status`.
        frames: `[point]`, ascending; empty without measurements.
        returns: `[point]`, mean return of one agent at these frames, in units of reward.
        score: the last evaluation; without evaluations the mean of the last tenth of `returns`; NaN without both.
        total_frames: frames trained so far.
        seconds: time that the job has executed, over all attempts.
    """

    job: str
    swept: Mapping[str, Any]
    task: str
    group: str | None
    run: Run
    state: str
    frames: np.ndarray
    returns: np.ndarray
    score: float
    total_frames: int
    seconds: float

    def __repr__(self) -> str:
        score = "no score yet" if np.isnan(self.score) else f"score {format_number(self.score)}"
        return f"<TrainingResult {self.job}: {self.task}, {self.state}, {self.total_frames:,} frames, {score}>"

    @property
    def can_be_compared(self) -> bool:
        return self.state == "complete" and len(self.frames) > 0


@dataclass(frozen=True, eq=False)
class _Training:
    """What is read of a training run.

    Attributes:
        frames: `[point]`, ascending; points that were not measured are left out.
        returns: by group, mean returns of one agent `[point]`.
    """

    job: str
    swept: Mapping[str, Any]
    run: Run
    task: str
    frames: np.ndarray
    returns: Mapping[str, np.ndarray]

    @property
    def earns_differently(self) -> bool:
        """Whether the returns of its groups differ at any point."""
        points = zip(*self.returns.values())
        return any(earn_differently(dict(zip(self.returns, point))) for point in points)


@dataclass(frozen=True, repr=False)
class BatchComparison:
    """The complete training runs of a batch, and why others are excluded.

    A training run counts if it is complete, even if a later cell of its notebook failed: excluding runs whose results
    disappointed would bias the comparison.

    Attributes:
        axes: the compared axes: those of the sweep without `repeats`.
        repeats: the axis whose values repeat a setting; None if the sweep has no such axis.
        measure: source of the returns: "evaluation" (separate episodes without exploration) or "training".
        values: values of each axis of the sweep.
        compared: results that are compared.
        others: results that are not compared.
        excluded: by job, why none or not all of its training runs are compared.
    """

    axes: tuple[str, ...]
    repeats: str | None
    measure: Measure
    values: Mapping[str, tuple[Any, ...]]
    compared: tuple[TrainingResult, ...]
    others: tuple[TrainingResult, ...]
    excluded: Mapping[str, str]

    def __repr__(self) -> str:
        over = f" over {self.repeats}" if self.repeats else ""
        tasks = f" on {', '.join(self.tasks)}" if self.compared else ""
        n_others = f"; {len(self.excluded):,} excluded, wholly or in part" if self.excluded else ""
        what = f"{', '.join(self.axes) or ALL}{over}{tasks}, by {self.measure} returns"
        return f"<BatchComparison of {what}: {count(len(self.compared), 'result')} compared{n_others}>"

    @property
    def tasks(self) -> list[str]:
        """The tasks; returns of different tasks are on different scales."""
        return list(dict.fromkeys(result.task for result in self.compared))

    def settings(self, task: str) -> dict[str, list[TrainingResult]]:
        """Compared results of a task by the values of all axes, such as `algorithm=mappo, lr=0.001`."""
        return self._grouped(task, self.axes)

    def by(self, axis: str, task: str) -> dict[str, list[TrainingResult]]:
        """Compared results of a task by the value of one axis, those of the other axes pooled.

        Raises:
            BatchError: this axis is not compared.
        """
        if axis not in self.axes:
            raise BatchError(unknown("compared axis of the batch", axis, self.axes))
        return self._grouped(task, (axis,))

    def _grouped(self, task: str, axes: Sequence[str]) -> dict[str, list[TrainingResult]]:
        label = labels({axis: self.values[axis] for axis in axes})
        groups: dict[str, list[TrainingResult]] = {text: [] for text in label.values()}
        for result in self.compared:
            if result.task == task:
                groups[label[key_of(result.swept[axis] for axis in axes)]].append(result)
        return {text: results for text, results in groups.items() if results}


def compare_batch(batch: Batch, *, repeats: str = SEED, measure: Measure | None = None) -> BatchComparison:
    """Compares the training runs of a batch, read from its jobs' folders.

    Args:
        batch: the batch; its jobs may still run.
        repeats: the axis whose values repeat a setting; all others are compared. A batch need not have the axis "seed".
        measure: source of the returns; None: evaluations if every complete training run has some, else training
            returns.
    Raises:
        BatchError: an unknown measure or axis.
    """
    if measure not in (None, *MEASURES):
        raise BatchError(unknown("measure", str(measure), MEASURES))
    if repeats not in (SEED, *batch.sweep.axes):
        raise BatchError(unknown("axis of the batch", repeats, batch.sweep.axes))
    statuses = batch.statuses()
    folders = {job.name: job.folder for job in batch.jobs()}
    runs = [(name, swept, run, task) for name, swept in swept_of(batch) for run, task in _runs_in(folders[name])]
    complete = [run for _, _, run, _ in runs if run.status()["state"] == "complete"]
    is_evaluated = bool(complete) and all(run.evaluations() for run in complete)
    chosen: Measure = measure or ("evaluation" if is_evaluated else "training")
    trainings = [_Training(name, swept, run, task, *_curves(run, chosen)) for name, swept, run, task in runs]
    # decided for all runs of a task: hunters and prey of a run without a catch may both have earned 0
    tasks_by_group = {training.task for training in trainings if training.earns_differently}
    results = [
        result
        for training in trainings
        for result in _results(training, chosen, statuses[training.job], by_group=training.task in tasks_by_group)
    ]
    compared = tuple(result for result in results if result.can_be_compared)
    others = tuple(result for result in results if not result.can_be_compared)
    return BatchComparison(
        axes=tuple(axis for axis in batch.sweep.axes if axis != repeats),
        repeats=repeats if repeats in batch.sweep.axes else None,
        measure=chosen,
        values={axis: tuple(values) for axis, values in batch.sweep.axes.items()},
        compared=compared,
        others=others,
        excluded=_reasons_for_exclusion(statuses, results, others, chosen),
    )


def labels(axes: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """A text for each combination of values, by its key; `ALL` without axes."""
    texts: dict[str, str] = {}
    for values in itertools.product(*axes.values()):
        shown = [_shown(value) for value in values]
        text = ", ".join(f"{axis}={part}" for axis, part in zip(axes, shown)) if len(axes) > 1 else "".join(shown)
        text = text or ALL
        same = sum(other == text or other.startswith(f"{text} (") for other in texts.values())
        texts[key_of(values)] = f"{text} ({same + 1})" if same else text
    return texts


def key_of(values: Iterable[Any]) -> str:
    """A combination of values as a key of `labels`."""
    return json.dumps(list(values), sort_keys=True)


def _shown(value: Any) -> str:
    """A value for people: a text that is not a plain word, or looks like a number, is quoted; a long one is cut."""
    is_word = isinstance(value, str) and _WORD.fullmatch(value) and not _is_json(value)
    text = str(value) if is_word else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_LABEL_LENGTH else text[: MAX_LABEL_LENGTH - 1] + "…"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def swept_of(batch: Batch) -> list[tuple[str, dict[str, Any]]]:
    axes = batch.sweep.axes
    return [(name, {axis: parameters[axis] for axis in axes}) for name, parameters in batch.sweep.jobs()]


def _runs_in(folder: Path) -> list[tuple[Run, str]]:
    """The runs in a job's folder and in its subfolders up to two levels deep, each with its task."""
    files = sorted(path for depth in ("", "*/", "*/*/") for path in folder.glob(f"{depth}{EXPERIMENT}"))
    runs = []
    for file in files:
        run, subfolder = Run.open(file.parent), file.parent.relative_to(folder).as_posix()
        runs.append((run, run.experiment.env.name if subfolder == "." else f"{run.experiment.env.name}, {subfolder}"))
    return runs


def _results(training: _Training, measure: Measure, status: JobStatus, *, by_group: bool) -> list[TrainingResult]:
    """One result of a training run; where groups are rewarded differently, as hunters and prey, one for each."""
    last = 1 if measure == "evaluation" else max(1, round(LAST_SHARE * len(training.frames)))
    run_status = training.run.status()
    total, state = int(run_status.get("frames", 0)), str(run_status["state"])
    curves: list[tuple[str | None, np.ndarray]] = [*training.returns.items()]
    if not by_group or not curves:
        curves = [(None, next(iter(training.returns.values()), np.array([])))]
    return [
        TrainingResult(
            job=training.job,
            swept=training.swept,
            task=training.task if group is None else f"{training.task}, {group}",
            group=group,
            run=training.run,
            state=state,
            frames=training.frames,
            returns=curve,
            score=float(curve[-last:].mean()) if len(curve) else nan,
            total_frames=total,
            seconds=status.seconds,
        )
        for group, curve in curves
    ]


def _curves(run: Run, measure: Measure) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Frames `[point]` and, by group, mean returns `[point]`; points that were not measured are left out."""
    if measure == "evaluation":
        rows = [
            (row["frames"], {group: _mean(episodes) for group, episodes in row["returns"].items()})
            for row in run.evaluations()
            if "frames" in row and "returns" in row
        ]
    else:
        known_rows = (row for row in read_rows(run.path / METRICS) if "frames" in row)
        rows = [(row["frames"], row.get("returns", {})) for row in known_rows]
    known = [(frames, returns) for frames, returns in rows if returns and all(map(_is_number, returns.values()))]
    groups = known[0][1] if known else ()
    curves = {group: np.array([returns[group] for _, returns in known], dtype=float) for group in groups}
    return np.array([frames for frames, _ in known], dtype=float), curves


def _mean(episodes: Sequence[float | None]) -> float:
    return float(np.mean([nan if value is None else value for value in episodes]))


def _is_number(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def _reasons_for_exclusion(
    statuses: Mapping[str, JobStatus],
    results: Sequence[TrainingResult],
    others: Sequence[TrainingResult],
    measure: Measure,
) -> dict[str, str]:
    reasons = {}
    for name, status in statuses.items():
        missing = [result for result in others if result.job == name]
        if not any(result.job == name for result in results):
            reasons[name] = f"{status.state}, and it has no run" + (f": {status.reason}" if status.reason else "")
        elif missing:
            reasons[name] = "; ".join(_reason(result, status, measure) for result in missing)
    return reasons


def _reason(result: TrainingResult, status: JobStatus, measure: Measure) -> str:
    if result.state == "complete":
        return f"its training has no {measure} to compare"
    frames = f"{result.total_frames:,} of {result.run.experiment.frames:,} frames"
    return f"its training is {result.state} at {frames}" + (f" ({status.reason})" if status.reason else "")
