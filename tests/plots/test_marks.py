"""Intervals of curves are visible, also where a curve has one point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from marlnb import plots
from marlnb.analysis.benchmarking.statistics import Band
from marlnb.plots.canvas import axes
from marlnb.plots.marks import draw_band
from tests.plots.test_comparing import GROWTH
from tests.plots.test_decoding import decoding, score
from tests.plots.test_interventions import Arm, Effect, Intervention


def bars(ax: Axes) -> list[tuple[float, ...]]:
    """`(x, low, high)` of each bar."""
    collections = [c for c in ax.collections if isinstance(c, LineCollection)]
    segments = [np.asarray(segment) for collection in collections for segment in collection.get_segments()]
    return [(segment[0, 0], segment[0, 1], segment[1, 1]) for segment in segments]


def test_a_point_without_neighbours_has_a_bar() -> None:
    ax = axes(None)
    draw_band(ax, [0, 1, 2, 3, 4], [0, 1, np.nan, 3, np.nan], [1, 2, np.nan, 5, np.nan], colour="#0072B2")
    assert bars(ax) == [(3, 3, 5)]
    (band,) = ax.collections[0].get_paths()[:1]
    assert np.asarray(band.vertices)[:, 0].max() == 1  # of the first two


def test_single_points_have_intervals_and_controls() -> None:
    efficiency = plots.sample_efficiency({"a": ([800], Band(np.array([2.0]), np.array([1.0]), np.array([4.0])))})
    assert bars(efficiency) == [(800, 1, 4)]
    response = plots.strength_response(Intervention([Arm(2.0, [Effect("listener_0", 4)])]))
    ((x, low, high),) = bars(response)
    assert x == 2 and low < 4 < high
    known = plots.decoding_over_time(decoding(score(t=3)))
    assert bars(known) == [pytest.approx((3, 0.7, 0.9)), pytest.approx((3, 0.3, 0.4))]  # of the score; shuffles
    one = replace(GROWTH, iterations=np.array([10]), values=GROWTH.values[:, :1], low=0 * GROWTH.low[:, :1])
    one = replace(one, high=GROWTH.high[:, :1], control=GROWTH.control[:, :1], untrained=GROWTH.untrained[:, :1])
    growth = plots.development_curves(one)
    assert bars(growth) == [(10, 0, 1), (10, 0, 1)]
    for ax in (known, growth):
        controls = [
            line for line in ax.lines if str(line.get_label()).startswith(("observation", "untrained", "hidden"))
        ]
        assert sum(line.get_marker() == "_" for line in controls) == 2
