"""A batch's results side by side: which runs can be compared, how each went, and which are missing, and why."""

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
from marlnb.batch.benchmark.results import means_of
from marlnb.batch.job.job import JobStatus
from marlnb.errors import BatchError, unknown
from marlnb.training.runs.files import EXPERIMENT, METRICS, read_lines
from marlnb.training.runs.run import Run

NOTEBOOK = Path(__file__).with_name("compare.ipynb")
SEED = "seed"
ALL = "all runs"
LAST_SHARE = 0.1  # of a training's episodes, whose mean return is its score where it was never evaluated
MAX_LABEL_LENGTH = 40
_WORD = re.compile(r"[^\W_][\w ./:+-]*|[./][\w./:+-]+")
Measure = Literal["evaluation", "training"]
MEASURES = ("evaluation", "training")


@dataclass(frozen=True, eq=False)
class Result:
    """How one training of a job went.

    Attributes:
        job: its name.
        swept: its values of the sweep's axes.
        task: the environment's name; of a run that lies deeper than the job's folder, where it lies as well.
        run: the training itself.
        state: of the training, as `Run.status` tells it.
        frames: `[place]`, ascending: at which `returns` `[place]` were measured, one agent's return averaged over
            agents and groups, in units of reward. Both are empty where nothing was measured.
        score: the last evaluation; of a training without any, the mean of the last tenth of `returns`. NaN: none.
        total_frames: that it has trained by now.
        seconds: that the job has been executing, all attempts together, whatever else it does.
    """

    job: str
    swept: Mapping[str, Any]
    task: str
    run: Run
    state: str
    frames: np.ndarray
    returns: np.ndarray
    score: float
    total_frames: int
    seconds: float

    @property
    def can_be_compared(self) -> bool:
        return self.state == "complete" and len(self.frames) > 0


@dataclass(frozen=True)
class BatchComparison:
    """The runs of a batch whose training is complete, and what is said of the others.

    A run counts when its training is complete, even where a later cell of its notebook failed: leaving those out that
    kept no promise would flatter what they were trained with.

    Attributes:
        axes: what is compared: the sweep's axes but the one that repeats.
        repeats: the axis whose values are repetitions of the same setting; None where the sweep has no such axis.
        measure: what returns are of: "evaluation" (held-out episodes, no exploration) or "training".
        compared, others: results by whether they are compared.
        left_out: by job, why nothing of it is compared, or not all.
    """

    axes: tuple[str, ...]
    repeats: str | None
    measure: Measure
    values: Mapping[str, tuple[Any, ...]]
    compared: tuple[Result, ...]
    others: tuple[Result, ...]
    left_out: Mapping[str, str]

    @property
    def tasks(self) -> list[str]:
        """What was trained on; returns of different tasks are not on one scale."""
        return list(dict.fromkeys(result.task for result in self.compared))

    def settings(self, task: str) -> dict[str, list[Result]]:
        """Compared results of a task by the values of all axes, as `algorithm=mappo, lr=0.001`."""
        return self._grouped(task, self.axes)

    def by(self, axis: str, task: str) -> dict[str, list[Result]]:
        """Compared results of a task by the value of one axis, those of the other axes pooled.

        Raises:
            BatchError: the batch does not compare this axis.
        """
        if axis not in self.axes:
            raise BatchError(unknown("compared axis of the batch", axis, self.axes))
        return self._grouped(task, (axis,))

    def _grouped(self, task: str, axes: Sequence[str]) -> dict[str, list[Result]]:
        label = labels({axis: self.values[axis] for axis in axes})
        found: dict[str, list[Result]] = {text: [] for text in label.values()}
        for result in self.compared:
            if result.task == task:
                found[label[key_of(result.swept[axis] for axis in axes)]].append(result)
        return {text: results for text, results in found.items() if results}


def compare_batch(batch: Batch, *, repeats: str = SEED, measure: Measure | None = None) -> BatchComparison:
    """What a batch has come to by now, read from its jobs' folders.

    Args:
        repeats: the axis whose values are repetitions; the others are compared. A sweep without it compares them all.
        measure: what runs are compared by; none: their evaluations where every complete training has some, else the
            returns of the training itself.
    Raises:
        BatchError: an unknown measure.
    """
    if measure not in (None, *MEASURES):
        raise BatchError(unknown("measure", str(measure), MEASURES))
    statuses = batch.statuses()
    folders = {job.name: job.folder for job in batch.jobs()}
    found = [(name, swept, run, task) for name, swept in swept_of(batch) for run, task in _runs_in(folders[name])]
    complete = [run for _, _, run, _ in found if run.status()["state"] == "complete"]
    chosen: Measure = measure or ("evaluation" if complete and all(r.evaluations() for r in complete) else "training")
    results = [_result(name, swept, task, run, chosen, statuses[name]) for name, swept, run, task in found]
    compared = [result for result in results if result.can_be_compared]
    others = [result for result in results if not result.can_be_compared]
    return BatchComparison(
        axes=tuple(axis for axis in batch.sweep.axes if axis != repeats),
        repeats=repeats if repeats in batch.sweep.axes else None,
        measure=chosen,
        values={axis: tuple(values) for axis, values in batch.sweep.axes.items()},
        compared=tuple(compared),
        others=tuple(others),
        left_out=_left_out(statuses, results, others, chosen),
    )


def labels(axes: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """By the key of each combination of values a text that names it; `ALL` where there are no axes."""
    found: dict[str, str] = {}
    for values in itertools.product(*axes.values()):
        shown = [_shown(value) for value in values]
        text = ", ".join(f"{axis}={part}" for axis, part in zip(axes, shown)) if len(axes) > 1 else "".join(shown)
        text = text or ALL
        same = sum(other == text or other.startswith(f"{text} (") for other in found.values())
        found[key_of(values)] = f"{text} ({same + 1})" if same else text
    return found


def key_of(values: Iterable[Any]) -> str:
    """A combination of values as a key of `labels`."""
    return json.dumps(list(values), sort_keys=True)


def _shown(value: Any) -> str:
    """A value as a person reads it; text that is no plain word, or reads as a number, is quoted, long text is cut."""
    plain = isinstance(value, str) and _WORD.fullmatch(value) and not _is_json(value)
    text = str(value) if plain else json.dumps(value, ensure_ascii=False)
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
    """The trainings in a job's folder, or one or two levels below it, each with its task."""
    files = sorted(path for depth in ("", "*/", "*/*/") for path in folder.glob(f"{depth}{EXPERIMENT}"))
    found = []
    for file in files:
        run, place = Run.open(file.parent), file.parent.relative_to(folder).as_posix()
        found.append((run, run.experiment.env.name if place == "." else f"{run.experiment.env.name}, {place}"))
    return found


def _result(name: str, swept: Mapping[str, Any], task: str, run: Run, measure: Measure, status: JobStatus) -> Result:
    frames, returns = _curve(run, measure)
    last = 1 if measure == "evaluation" else max(1, round(LAST_SHARE * len(returns)))
    score = float(returns[-last:].mean()) if len(returns) else nan
    now = run.status()
    total = int(now.get("frames", 0))
    return Result(name, swept, task, run, str(now["state"]), frames, returns, score, total, status.seconds)


def _curve(run: Run, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
    """Frames and mean returns, both `[place]`, without the places at which nothing was measured."""
    if measure == "evaluation":
        rows = [(row["frames"], means_of(row["returns"])["return"]) for row in run.evaluations()]
    else:
        rows = [
            (row["frames"], float(np.mean(list(row["returns"].values()))))
            for row in read_lines(run.path / METRICS)
            if row["returns"] and None not in row["returns"].values()
        ]
    table = np.array(rows, dtype=float).reshape(-1, 2)
    table = table[np.isfinite(table[:, 1])]
    return table[:, 0], table[:, 1]


def _left_out(
    statuses: Mapping[str, JobStatus], results: Sequence[Result], others: Sequence[Result], measure: Measure
) -> dict[str, str]:
    found = {}
    for name, status in statuses.items():
        missing = [result for result in others if result.job == name]
        if not any(result.job == name for result in results):
            found[name] = f"{status.state}, and it has trained nothing" + (
                f": {status.reason}" if status.reason else ""
            )
        elif missing:
            found[name] = "; ".join(_why(result, status, measure) for result in missing)
    return found


def _why(result: Result, status: JobStatus, measure: Measure) -> str:
    if result.state == "complete":
        return f"its training has no {measure} to compare"
    frames = f"{result.total_frames:,} of {result.run.experiment.frames:,} frames"
    return f"its training is {result.state} at {frames}" + (f" ({status.reason})" if status.reason else "")
