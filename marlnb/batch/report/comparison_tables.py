"""Tables of a batch's results, and estimates and curves with their intervals."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from markupsafe import Markup, escape

from marlnb.analysis.benchmarking.statistics import Band, Estimate, aggregate, curve_band
from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from marlnb.batch.report.comparison import BatchComparison, TrainingResult, key_of, labels, swept_of
from marlnb.display.notebook_html import styled
from marlnb.paths import expanded

if TYPE_CHECKING:
    import pandas as pd

PAGE = "notebook.html"  # a job's executed notebook
SCORE = "score"
NUMERIC_COLUMNS = ("frames", SCORE, "minutes", "attempts")


def job_table(batch: Batch, comparison: BatchComparison) -> pd.DataFrame:
    """One row per job: name, swept values, state, frames and score of its runs so far, minutes, attempts, reason.

    A job with several training runs has the sum of their frames and no score. Where groups are rewarded differently,
    each has a column, `score of <group>`. A swept parameter with the name of another column is shown as `parameter
    <name>`.
    """
    import pandas as pd

    by_job: dict[str, list[TrainingResult]] = {}
    for result in (*comparison.compared, *comparison.others):
        by_job.setdefault(result.job, []).append(result)
    score_columns = list(dict.fromkeys(map(_score_column, itertools.chain(*by_job.values())))) or [SCORE]
    statuses, rows = batch.statuses(), []
    for name, swept in swept_of(batch):
        status, results = statuses[name], by_job.get(name, [])
        frames = {result.run.path: result.total_frames for result in results}
        scores = {_score_column(result): result.score for result in results} if len(frames) == 1 else {}
        columns = {
            "state": status.state,
            "frames": sum(frames.values()),
            **{column: scores.get(column, nan) for column in score_columns},
            "minutes": status.seconds / 60,
            "attempts": status.attempt,
            "progress": status.progress,
            "reason": status.reason,
        }
        shown = {f"parameter {axis}" if axis in ("job", *columns) else axis: value for axis, value in swept.items()}
        rows.append({"job": name, **shown, **columns})
    return pd.DataFrame(rows)


def _score_column(result: TrainingResult) -> str:
    return SCORE if result.group is None else f"{SCORE} of {result.group}"


def duration_table(batch: Batch, axes: Sequence[str]) -> pd.DataFrame:
    """One row per setting: number of its jobs and complete jobs, the median and the longest of their minutes."""
    import pandas as pd

    statuses = batch.statuses()
    label = labels({axis: batch.sweep.axes[axis] for axis in axes})
    rows: dict[str, list[JobStatus]] = {text: [] for text in label.values()}
    for name, swept in swept_of(batch):
        rows[label[key_of(swept[axis] for axis in axes)]].append(statuses[name])
    return pd.DataFrame(
        {
            "setting": text,
            "jobs": len(statuses_of_setting),
            "complete": sum(status.state == "complete" for status in statuses_of_setting),
            "minutes, median": float(np.median(minutes)) if minutes else nan,
            "longest": max(minutes, default=nan),
        }
        for text, statuses_of_setting in rows.items()
        for minutes in [[status.seconds / 60 for status in statuses_of_setting if status.state == "complete"]]
    )


def estimates(
    groups: Mapping[str, Sequence[TrainingResult]],
    of: Callable[[TrainingResult], float],
    *,
    n_bootstrap: int = 2000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The interquartile mean over each group's runs with its 95% bootstrap interval; NaN bounds for a single run."""
    estimates_of_groups = {}
    for name, results in groups.items():
        scores = np.array([[of(result)] for result in results], dtype=float)
        estimates_of_groups[name] = aggregate({name: scores}, n_bootstrap=n_bootstrap, seed=seed)["IQM"][name]
    return estimates_of_groups


def bands(
    groups: Mapping[str, Sequence[TrainingResult]], *, n_bootstrap: int = 2000, seed: int = 0
) -> dict[str, tuple[np.ndarray, Band]]:
    """By group, frames `[point]` and the interquartile mean of its runs' returns there, with its 95% interval.

    The points are the group's shortest list of measured frames, up to the frame that all runs reached. Returns of other
    runs are interpolated linearly. A single run has NaN bounds.
    """
    curves_of_groups = {}
    for name, results in groups.items():
        first, last = max(r.frames[0] for r in results), min(r.frames[-1] for r in results)
        shortest = min((r.frames for r in results), key=len)
        points = np.unique([*shortest[(shortest >= first) & (shortest <= last)], min(first, last), last])
        curves = np.array([[np.interp(points, r.frames, r.returns)] for r in results])
        curves_of_groups[name] = (points, curve_band(curves, n_bootstrap=n_bootstrap, seed=seed))
    return curves_of_groups


def score_table(
    groups: Mapping[str, Sequence[TrainingResult]], *, n_bootstrap: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """One row per setting: number of runs, interquartile means of score, frames and minutes, the score's interval."""
    import pandas as pd

    columns = {
        name: estimates(groups, of, n_bootstrap=n_bootstrap, seed=seed)
        for name, of in (
            ("score", lambda result: result.score),
            ("frames", lambda result: result.total_frames),
            ("minutes", lambda result: result.seconds / 60),
        )
    }
    return pd.DataFrame(
        {
            "setting": name,
            "runs": len(results),
            "score": columns["score"][name].value,
            "low": columns["score"][name].low,
            "high": columns["score"][name].high,
            "frames": columns["frames"][name].value,
            "minutes": columns["minutes"][name].value,
        }
        for name, results in groups.items()
    )


def linked(table: pd.DataFrame, batch: Batch, folder: str | os.PathLike[str]) -> Markup:
    """A table of jobs as HTML; a job's name is a link to its executed notebook if that exists.

    Args:
        table: as `job_table` returns it.
        batch: the batch.
        folder: folder of the page, to which the links are relative.
    """
    page_folder, folders = expanded(folder).absolute(), {job.name: job.folder for job in batch.jobs()}

    def link(name: str) -> Markup:
        page = folders[name] / PAGE
        address = quote(os.path.relpath(page, page_folder))
        return Markup('<a href="{}">{}</a>').format(address, name) if page.is_file() else escape(name)

    shown = table.copy()
    texts = (column for column in table.columns.difference(NUMERIC_COLUMNS) if not column.startswith(f"{SCORE} of "))
    for column in texts:  # swept values are not rounded
        shown[column] = [str(value) for value in table[column]]
    shown["job"] = table["job"].map(link)
    return Markup(styled(shown, thousands=",").to_html())
