"""Figures of sweeps show the given runs, whatever the settings are called."""

from __future__ import annotations

from math import nan

import numpy as np

from marlnb import plots
from marlnb.analysis.benchmarking.statistics import Band, Estimate

HOSTILE = "$(rm -rf) and $x"


def test_each_setting_has_points_an_estimate_and_an_interval() -> None:
    estimates = {"mappo": Estimate(-8.0, -9.0, -7.0), HOSTILE: Estimate(-12.0, nan, nan)}
    ax = plots.setting_scores(estimates, {"mappo": [-9.0, -7.0], HOSTILE: [-12.0]})
    (box,) = ax.patches  # a single run has no interval
    assert (box.get_x(), box.get_width()) == (-9.0, 2.0)  # type: ignore[attr-defined]
    points = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
    assert [list(np.asarray(each)) for each in points] == [[-9.0, -7.0], [-12.0]]
    # a `$` begins no formula
    assert [text.get_text() for text in ax.get_yticklabels()] == ["mappo", HOSTILE]


def test_single_runs_are_drawn_to_their_own_ends() -> None:
    frames, band = np.array([1000, 2000]), Band(np.array([1.0, 2.0]), np.zeros(2), np.full(2, 3.0))
    runs = {HOSTILE: [(np.array([1000, 2000, 5000]), np.array([0.0, 1.0, 4.0]))]}
    ax = plots.sample_efficiency({HOSTILE: (frames, band)}, runs=runs)
    single, curve = ax.lines
    assert list(np.asarray(single.get_xdata())) == [1.0, 2.0, 5.0] and list(np.asarray(curve.get_xdata())) == [1.0, 2.0]
    assert "thousand" in ax.get_xlabel()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [HOSTILE]  # type: ignore[union-attr]
