"""A batch's results as tables, and as estimates and curves with their intervals."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from marlnb.analysis.benchmarking.statistics import Band, Estimate, aggregate, curve_band
from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from marlnb.batch.report.comparison import BatchComparison, Result, key_of, labels, swept_of

if TYPE_CHECKING:
    import pandas as pd

PAGE = "notebook.html"  # of a job: its executed notebook
NUMBERS = ("frames", "score", "minutes", "attempts")


def job_table(batch: Batch, comparison: BatchComparison) -> pd.DataFrame:
    """One row a job: name, swept values, state, frames and score of its trainings so far, minutes, attempts, reason.

    A job of several trainings has the sum of their frames and no score. A swept parameter whose name is that of
    another column is shown as `parameter <name>`.
    """
    import pandas as pd

    of: dict[str, list[Result]] = {}
    for result in (*comparison.compared, *comparison.others):
        of.setdefault(result.job, []).append(result)
    statuses, rows = batch.statuses(), []
    for name, swept in swept_of(batch):
        status, results = statuses[name], of.get(name, [])
        told = {
            "state": status.state,
            "frames": sum(result.total_frames for result in results),
            "score": results[0].score if len(results) == 1 else nan,
            "minutes": status.seconds / 60,
            "attempts": status.attempt,
            "progress": status.progress,
            "reason": status.reason,
        }
        shown = {f"parameter {axis}" if axis in ("job", *told) else axis: value for axis, value in swept.items()}
        rows.append({"job": name, **shown, **told})
    return pd.DataFrame(rows)


def duration_table(batch: Batch, axes: Sequence[str]) -> pd.DataFrame:
    """One row a setting: how many of its jobs are complete, and the median and the longest of their minutes."""
    import pandas as pd

    statuses = batch.statuses()
    label = labels({axis: batch.sweep.axes[axis] for axis in axes})
    rows: dict[str, list[JobStatus]] = {text: [] for text in label.values()}
    for name, swept in swept_of(batch):
        rows[label[key_of(swept[axis] for axis in axes)]].append(statuses[name])
    return pd.DataFrame(
        {
            "setting": text,
            "jobs": len(each),
            "complete": sum(status.state == "complete" for status in each),
            "minutes, median": float(np.median(minutes)) if minutes else nan,
            "longest": max(minutes, default=nan),
        }
        for text, each in rows.items()
        for minutes in [[status.seconds / 60 for status in each if status.state == "complete"]]
    )


def estimates(
    groups: Mapping[str, Sequence[Result]], of: Callable[[Result], float], *, n_bootstrap: int = 2000, seed: int = 0
) -> dict[str, Estimate]:
    """By group the interquartile mean over its runs, with its 95% bootstrap interval; NaN ends for a single run."""
    found = {}
    for name, results in groups.items():
        scores = np.array([[of(result)] for result in results], dtype=float)
        estimate = aggregate({name: scores}, n_bootstrap=n_bootstrap, seed=seed)["IQM"][name]
        found[name] = estimate if len(results) > 1 else Estimate(estimate.value, nan, nan)
    return found


def bands(
    groups: Mapping[str, Sequence[Result]], *, n_bootstrap: int = 2000, seed: int = 0
) -> dict[str, tuple[np.ndarray, Band]]:
    """By group, frames `[place]` and the interquartile mean of its runs' returns there, with its 95% interval.

    The places are the group's shortest list of measured frames, as far as all of its runs have come; another run's
    returns between two of its own places lie on a straight line. A single run has an interval of NaN.
    """
    found = {}
    for name, results in groups.items():
        first, last = max(r.frames[0] for r in results), min(r.frames[-1] for r in results)
        shortest = min((r.frames for r in results), key=len)
        places = np.unique([*shortest[(shortest >= first) & (shortest <= last)], min(first, last), last])
        curves = np.array([[np.interp(places, r.frames, r.returns)] for r in results])
        band = curve_band(curves, n_bootstrap=n_bootstrap, seed=seed)
        unknown_ends = np.full(len(places), nan)
        found[name] = (places, band if len(results) > 1 else Band(band.value, unknown_ends, unknown_ends))
    return found


def score_table(groups: Mapping[str, Sequence[Result]], *, n_bootstrap: int = 2000, seed: int = 0) -> pd.DataFrame:
    """One row a setting: its runs, the interquartile means of score, frames and minutes, and the score's interval."""
    import pandas as pd

    found = {
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
            "score": found["score"][name].value,
            "low": found["score"][name].low,
            "high": found["score"][name].high,
            "frames": found["frames"][name].value,
            "minutes": found["minutes"][name].value,
        }
        for name, results in groups.items()
    )


def linked(table: pd.DataFrame, batch: Batch, place: str | os.PathLike[str]) -> str:
    """A table of jobs as HTML, in which each job's name is a link to its executed notebook where that exists.

    Args:
        place: the folder in which the page will lie, from which the links start.
    """
    here, folders = Path(place).expanduser().absolute(), {job.name: job.folder for job in batch.jobs()}

    def link(name: str) -> str:
        page = folders[name] / PAGE
        text = escape(name)
        return f'<a href="{escape(quote(os.path.relpath(page, here)))}">{text}</a>' if page.is_file() else text

    shown = table.copy()
    for column in table.columns.difference(NUMBERS):  # a value that was swept is shown as it is, not rounded
        shown[column] = [escape(str(value)) for value in table[column]]
    shown["job"] = table["job"].map(link)
    return str(shown.style.format(precision=2, thousands=",", na_rep="–").hide(axis="index").to_html())
