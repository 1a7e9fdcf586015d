"""The curves of several runs as one: their interquartile mean with an interval, where all of them have values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marlnb.analysis.benchmarking.statistics import curve_band

N_POINTS = 100
N_BOOTSTRAP = 200


@dataclass(frozen=True)
class RunCurve:
    """A curve over runs.

    Attributes:
        x: `[point]`, ascending, from the latest first to the earliest last value of the runs.
        value: `[point]`, the interquartile mean over runs.
        low, high: `[point]`, the ends of its 95% bootstrap interval over runs; None for a single run.
        runs: `[run, point]`, the runs at these points.
    """

    x: np.ndarray
    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    runs: np.ndarray


def average_curves(curves: Sequence[tuple[ArrayLike, ArrayLike]]) -> RunCurve | None:
    """The average of runs, each given as `(x [point], y [point])` with ascending x.

    Returns:
        None if no x lies within all runs.
    Raises:
        AnalysisError: a value is not finite.
    """
    read = [(np.asarray(x, float), np.asarray(y, float)) for x, y in curves]
    first, last = max(x[0] for x, _ in read), min(x[-1] for x, _ in read)
    if last < first:
        return None
    points = np.linspace(first, last, N_POINTS if last > first else 1)
    runs = np.stack([np.interp(points, x, y) for x, y in read])
    if len(runs) == 1:
        return RunCurve(points, runs[0], None, None, runs)
    band = curve_band(runs[:, None], n_bootstrap=N_BOOTSTRAP)
    return RunCurve(points, band.value, band.low, band.high, runs)
