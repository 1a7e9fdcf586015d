"""Figures of influence, value shares, and attributions by agent and by lag show the given numbers."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.axes import Axes

from marlnb import plots
from marlnb.errors import AnalysisError


def drawn(ax: Axes) -> str:
    ax.figure.savefig(BytesIO(), format="png")
    return " ".join(text.get_text() for text in ax.texts)


def influence(**changes: object) -> SimpleNamespace:
    values = np.array([[np.nan, 0.0], [0.5, np.nan]])
    fields = {
        "values": values, "low": values - 0.1, "high": values + 0.2, "agents": ("a", "b"), "sources": ("a", "b"),
        "through": "communication", "measure": "divergence", "units": "nats", "n_episodes": 40, "warnings": (),
    }  # fmt: skip
    return SimpleNamespace(**{**fields, **changes})


def test_pairs_are_written_with_their_intervals() -> None:
    ax = plots.influence_matrix(influence())
    text = drawn(ax)
    assert "0.5\n[0.4, 0.7]" in text and text.count("not\nmeasured") == 2 and "NOT TO BE TRUSTED" not in text
    assert "40 episodes" in ax.get_xlabel()
    assert "NOT TO BE TRUSTED\nfew" in drawn(plots.influence_matrix(influence(warnings=("few",))))


def test_intervals_fit_into_their_cells() -> None:
    values, names = np.full((4, 4), -2.3e-4), ("a", "b", "c", "d")
    intervals = {"values": values, "low": values - 1e-5, "high": values + 1e-5}
    ax = plots.influence_matrix(influence(agents=names, sources=names, **intervals))
    assert "[-0.00024, -0.00022]" in drawn(ax)
    cell = ax.get_window_extent().width / 4
    assert all(text.get_window_extent().width < cell for text in ax.texts)


def test_shares_are_averaged_at_each_step() -> None:
    share = np.array([[1.0, 4.0], [3.0, np.nan], [5.0, 6.0]])
    shares = SimpleNamespace(share=share, t=np.array([0, 0, 1]), agents=("a", "b"), group="team", warnings=())
    ax = plots.value_decomposition_over_time(shares)
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [2, 5])
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), [4, 6])
    drawn(ax)
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1  # type: ignore[union-attr]


def test_agents_are_side_by_side_largest_on_top() -> None:
    values = np.array([[[1.0, -3.0], [2.0, 1.0]], [[1.0, 3.0], [np.nan, np.nan]]])
    attribution = SimpleNamespace(
        values=values, agents=("a", "b"), feature_labels=("x", "y"), units="logits", target="logit",
        warnings=(),
    )  # fmt: skip
    ax = plots.attribution_by_agent(attribution)
    assert [bar.get_width() for bar in ax.patches] == [3, 1, 1, 2]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["y", "x"]
    drawn(ax)


def test_lags_go_back_in_time_and_end_with_the_state() -> None:
    values = np.zeros((2, 1, 2, 1))
    values[:, 0, :, 0] = [[2.0, -1.0], [4.0, 1.0]]
    attribution = SimpleNamespace(
        values=values, state_values=np.array([[0.5], [-0.5]]), agents=("a",), feature_names=("x",), units="logits",
        target="logit", warnings=(),
    )  # fmt: skip
    ax = plots.attribution_over_lags(attribution)
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in ax.patches}
    assert heights == {0: pytest.approx(3), -1: pytest.approx(1), -2: pytest.approx(0.5)}
    assert "state" in [label.get_text() for label in ax.get_xticklabels()]
    drawn(ax)
    legend = ax.get_legend()
    assert legend is not None and legend.get_window_extent().x0 >= ax.get_window_extent().x1


def test_names_of_many_lags_do_not_overlap() -> None:
    for n_lags in (1, 15, 30, 100):
        attribution = SimpleNamespace(
            values=np.ones((2, 1, n_lags, 1)), state_values=np.ones((2, 1)), agents=("a",), feature_names=("x",),
            units="logits", target="logit", warnings=(),
        )  # fmt: skip
        ax = plots.attribution_over_lags(attribution)
        drawn(ax)
        labels = sorted(ax.get_xticklabels(), key=lambda label: label.get_window_extent().x0)
        assert [labels[0].get_text(), labels[-1].get_text()] == ["state", "0"]
        assert {label.get_rotation() for label in labels} == {0}
        assert all(a.get_window_extent().x1 < b.get_window_extent().x0 for a, b in pairwise(labels))


def test_an_isolated_point_has_a_marker() -> None:
    share = np.array([[1.0, 4.0], [np.nan, 5.0], [np.nan, 6.0]])
    shares = SimpleNamespace(share=share, t=np.arange(3), agents=("a", "b"), group="team", warnings=())
    first, second = plots.value_decomposition_over_time(shares).get_lines()[:2]
    assert first.get_markevery() == [0] and second.get_markevery() == []


def test_lags_of_an_agent_that_never_acted_are_an_error() -> None:
    attribution = SimpleNamespace(
        values=np.full((2, 1, 2, 1), np.nan), state_values=np.full((2, 1), np.nan), agents=("a",), feature_names=("x",),
        units="logits", target="logit", warnings=(),
    )  # fmt: skip
    with pytest.raises(AnalysisError, match="a acted at none of the 2 steps"):
        plots.attribution_over_lags(attribution)
