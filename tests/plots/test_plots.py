"""Figures show the given numbers, with titles, units, names and warnings."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

import marlnb
from marlnb import plots
from marlnb.errors import AnalysisError, ShapeError
from marlnb.plots.activations import similar_order
from marlnb.plots.attribution import provenance
from marlnb.plots.canvas import axes, finish
from marlnb.plots.runs.learning import _move_apart, running_mean

AGENTS = ("speaker_0", "listener_0")


@dataclass
class Attribution:
    """Twelve rows, one agent, three features of the magnitudes 1, 2 and 3."""

    values: np.ndarray
    t: np.ndarray = field(default_factory=lambda: np.tile(np.arange(4), 3))
    agents: tuple[str, ...] = ("listener_0",)
    feature_labels: tuple[str, ...] = ("small", "middle", "large")
    units: str = "logits"
    target: str = "logit of up"
    method: str = "integrated_gradients"
    baseline_name: str = "mean"
    complete: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def relative_delta(self) -> np.ndarray:
        return np.full(self.values.shape[:2], 1e-6)


@dataclass
class Score:
    agent: str = "listener_0"
    t: int | None = None
    n_rows: int = 500
    n_episodes: int = 20
    score: float = 0.9
    low: float = 0.8
    high: float = 0.95
    chance: float = 1 / 3
    shuffled: float = 0.34
    shuffled_high: float = 0.4
    observation: float = 0.6
    untrained: float | None = 0.5
    control: float | None = 0.7
    site: str = "listener/actor/hidden_1"
    offset: int = 0
    p: float = 0.01

    def survives(self, correction: str = "max") -> bool:
        return self.p <= 0.05


@dataclass
class Decoding:
    scores: tuple[Score, ...]
    site: str = "listener/actor/hidden_1"
    label: str = "goal"
    metric: str = "balanced accuracy"
    checkpoint: int | None = 10
    warnings: tuple[str, ...] = ()

    def conclusion_of(self, score: Score) -> str:
        return "beyond controls" if score.survives() else "not above chance"

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score.agent for score in self.scores))

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score.site for score in self.scores))


def attribution(**changes: object) -> Attribution:
    signs = np.where(np.arange(12) % 2, 1.0, -1.0)[:, None, None]
    return Attribution(np.array([1.0, 2.0, 3.0]) * signs, **changes)  # type: ignore[arg-type]


def texts(ax: Axes) -> str:
    figure = ax.figure
    figure.savefig(BytesIO(), format="png")
    assert ax.get_title(loc="left")
    return " ".join(text.get_text() for text in ax.texts)


def test_the_learning_curve_has_the_given_points() -> None:
    ax = plots.learning_curve([1e6, 2e6, 3e6], [-40.0, np.nan, -8.0], references={"oracle": -7.9})
    line = ax.get_lines()[0]
    np.testing.assert_allclose(line.get_xydata(), [[1, -40], [3, -8]])
    assert "million" in ax.get_xlabel() and "reward" in ax.get_ylabel()
    assert "oracle\n(-7.9)" in texts(ax)
    single = plots.learning_curve([512], [3.0])
    assert [line.get_marker() for line in single.get_lines()] == ["o"]  # a line of one point is invisible
    several = plots.learning_curve([1, 2], {"a": [0, 1], "b": [1, 0]})
    assert [text.get_text() for text in several.get_legend().get_texts()] == ["a", "b"]


def test_names_of_levels_close_together_do_not_overlap() -> None:
    ax = plots.learning_curve([1, 2], [-40.0, -5.0], references={"random": -26.4, "no-op": -26.0, "oracle": -7.7})
    offsets = {text.get_text().split("\n")[0]: text.xyann[1] for text in ax.texts}
    assert offsets["oracle"] == 0 and offsets["random"] < 0 < offsets["no-op"]  # the mean of the two stays
    assert [_round(_move_apart(positions, 10.0)) for positions in ([0, 4], [0, 9, 18], [0, 10, 50])] == [
        [-3, 7],
        [-1, 9, 19],
        [0, 10, 50],
    ]


def _round(values: list[float]) -> list[int]:
    return [round(value) for value in values]


def test_a_running_mean_by_hand() -> None:
    y = np.array([2.0, 4.0, 6.0, 2.0, 1.0])
    assert running_mean(y, 3).tolist() == running_mean(y, 4).tolist() == [2, 4, 4, 3, 1]
    assert running_mean(y, 5).tolist() == [2, 4, 3, 3, 1]
    assert running_mean(np.arange(9.0), 7).tolist() == list(range(9))  # a rising curve is not delayed


def test_the_note_names_the_window_that_was_averaged() -> None:
    ax = plots.learning_curve(np.arange(20.0), np.arange(20.0) ** 2, smooth=4)
    assert ax.get_xlabel().endswith("running mean of 3")
    assert ax.get_lines()[1].get_ydata()[5] == pytest.approx((16 + 25 + 36) / 3)  # type: ignore[index]


def test_without_returns_the_histogram_says_so() -> None:
    for returns in ([], [np.nan]):
        assert "no returns" in texts(plots.return_distribution(returns, references={"oracle": 1.0}))


def test_every_episode_is_in_the_histogram() -> None:
    ax = plots.return_distribution([-8.0, -9.0, -10.0, np.nan], references={"oracle": -7.9})
    assert sum(bar.get_height() for bar in ax.patches) == 3
    assert "mean of 3 episodes (-9.00)" in [text.get_text() for text in ax.get_legend().get_texts()]
    texts(ax)


@pytest.mark.parametrize("returns", [np.float32([2.5, 2.5000002]), [0.1 + 0.2, 0.3]])
def test_returns_that_are_equal_up_to_rounding_are_one_bar(returns: np.ndarray | list[float]) -> None:
    ax = plots.return_distribution(np.tile(returns, 10))
    assert [bar.get_height() for bar in ax.patches if bar.get_height()] == [20]
    (name,) = (text.get_text() for text in ax.get_legend().get_texts())
    assert name in ("mean of 20 episodes (2.50)", "mean of 20 episodes (0.300)")


def test_episodes_are_counted_in_whole_numbers() -> None:
    ax = plots.return_distribution([1.0, 2.0, 4.0])
    assert all(float(tick).is_integer() for tick in ax.get_yticks())


def test_bars_are_the_mean_magnitudes_largest_on_top() -> None:
    ax = plots.attribution_bars(attribution(), agents=AGENTS)
    widths = [bar.get_width() for bar in ax.patches]
    heights = [ax.transData.transform((0, bar.get_y()))[1] for bar in ax.patches]
    assert widths == [3.0, 2.0, 1.0] and heights == sorted(heights, reverse=True)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["large", "middle", "small"]
    assert "logits" in ax.get_xlabel()
    assert "\nintegrated gradients, baseline: mean, 12 rows" in ax.get_xlabel()
    signed = plots.attribution_bars(attribution(), signed=True, max_features=2)
    assert [bar.get_width() for bar in signed.patches] == [0.0, 0.0]
    assert signed.get_xlabel().endswith("\n1 smaller feature not shown")
    figure = signed.figure
    figure.draw_without_rendering()
    label = signed.xaxis.label.get_window_extent()
    assert label.x0 >= 0 and label.x1 <= figure.bbox.x1  # the label must fit into the figure


def test_attributions_of_an_agent_that_never_acted_are_an_error() -> None:
    values = np.ones((12, 2, 3))
    values[:, 1] = np.nan
    for figure in (plots.attribution_bars, plots.attribution_over_time):
        figure(Attribution(values, agents=AGENTS), agent=AGENTS[0])
        with pytest.raises(AnalysisError, match="listener_0 acted at none of the 12 steps"):
            figure(Attribution(values, agents=AGENTS), agent=AGENTS[1])


def test_the_rows_of_a_figure_are_those_of_its_agent() -> None:
    values, delta = np.ones((6, 2, 3)), np.tile([1e-3, 1e-1], (6, 1))
    values[4:, 0], delta[4:, 0] = np.nan, np.nan  # the first agent acted at 4 of 6 rows

    class OfTurns(Attribution):
        relative_delta = delta

    for agent, n_rows, unexplained in (("a", 4, "1e-03"), ("b", 6, "1e-01")):
        text = provenance(OfTurns(values, agents=("a", "b")), agent)
        assert f"{n_rows} rows" in text and f"at most {unexplained} of the output" in text


def test_warnings_are_written_into_the_figure() -> None:
    for ax in (
        plots.attribution_bars(attribution(warnings=("did not converge",))),
        plots.attribution_over_time(attribution(warnings=("did not converge",))),
        plots.decoding_bars(Decoding((Score(),), warnings=("did not converge",))),
        plots.decoding_over_time(Decoding((Score(t=0), Score(t=1)), warnings=("did not converge",))),
    ):
        assert "NOT TO BE TRUSTED\ndid not converge" in texts(ax)


@pytest.mark.parametrize("layout", ["ours", "constrained", None])
def test_warnings_hide_no_label_and_stay_in_the_picture(layout: str | None) -> None:
    own = None if layout == "ours" else Figure(layout=layout).add_subplot()
    warned = attribution(warnings=("did not converge", "and a second reason " * 6))
    warned.feature_labels = (
        "small",
        "middle",
        "a feature with a name of many letters" if layout == "ours" else "large",
    )
    ax = plots.attribution_bars(warned, ax=own)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    (box,) = (text.get_window_extent() for text in ax.texts if "NOT TO BE TRUSTED" in text.get_text())
    assert min(box.x0, box.y0) > 0 and box.x1 < figure.bbox.x1
    if layout:  # a figure without a layout has no room below its axes
        assert box.y1 < ax.xaxis.label.get_window_extent().y0


def test_lines_over_time_sum_the_features_of_a_group() -> None:
    ax = plots.attribution_over_time(attribution(), features={"both": ["small", "large"], "one": ["middle"]})
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), [[t, 4] for t in range(4)])
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), 2)
    with pytest.raises(AnalysisError, match="did you mean 'large'"):
        plots.attribution_over_time(attribution(), features={"x": ["larg"]})
    largest = plots.attribution_over_time(attribution(), max_features=1)
    assert [text.get_text() for text in largest.get_legend().get_texts()] == ["large", "2 others"]


def test_a_decoding_is_drawn_next_to_its_controls() -> None:
    ax = plots.decoding_bars(Decoding((Score(),)), agents=AGENTS)
    assert [bar.get_height() for bar in ax.patches] == [0.9, 0.6, 0.5, 0.34, 0.7]
    assert "chance" in texts(ax) and "500 steps of 20 episodes" in ax.get_xlabel()
    assert len(plots.decoding_bars(Decoding((Score(untrained=None, control=None),))).patches) == 3
    over = plots.decoding_over_time(Decoding((Score(t=0, score=0.3), Score(t=1))))
    np.testing.assert_allclose(over.get_lines()[0].get_xydata(), [[0, 0.3], [1, 0.9]])
    with pytest.raises(AnalysisError, match="at='each'"):
        plots.decoding_over_time(Decoding((Score(),)))
    with pytest.raises(AnalysisError, match="decoding_over_time"):
        plots.decoding_bars(Decoding((Score(t=0), Score(t=1))))
    with pytest.raises(AnalysisError, match="several agents: give agent="):
        plots.decoding_bars(Decoding((Score(), Score(agent="speaker_0"))))


def test_units_with_similar_courses_are_neighbours() -> None:
    t = np.linspace(0, 6, 40)
    units = np.stack([np.sin(t), np.cos(t), np.sin(t) + 0.01 * t, np.cos(t) - 0.01 * t], axis=1)
    place = similar_order(units).tolist()
    assert {abs(place.index(0) - place.index(2)), abs(place.index(1) - place.index(3))} == {1}
    ax = plots.activation_map(units, agent="listener_0", order="index")
    np.testing.assert_array_equal(ax.images[0].get_array(), units.T)
    assert ax.images[0].get_clim() == pytest.approx((-np.abs(units).max(), np.abs(units).max()))
    texts(ax)
    with pytest.raises(ShapeError, match=r"\[time, unit\]"):
        plots.activation_map(units[0], agent="listener_0")


def test_activations_that_are_not_finite_are_grey_and_change_neither_colours_nor_order() -> None:
    t = np.linspace(0, 6, 40)
    units = np.stack([np.sin(t), np.cos(t), np.sin(t) + 0.01 * t, np.cos(t) - 0.01 * t, np.full(40, np.nan)], axis=1)
    units[3], units[4, 0] = np.nan, -np.inf
    order = similar_order(units).tolist()
    assert sorted(order) == list(range(5))
    shown = [unit for unit in order if unit != 4]
    assert {abs(shown.index(0) - shown.index(2)), abs(shown.index(1) - shown.index(3))} == {1}
    ax = plots.activation_map(units, agent="agent_0", order="index")
    largest = np.abs(units[np.isfinite(units)]).max()
    assert ax.images[0].get_clim() == pytest.approx((-largest, largest))
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    for step, unit in ((3, 1), (4, 0), (20, 4)):
        x, y = ax.transData.transform((step, unit)).round().astype(int)
        assert pixels[len(pixels) - y, x, :3].tolist() == [0xE8] * 3
    texts(plots.activation_map(np.full((4, 3), np.nan), agent="agent_0"))


def test_an_axis_of_a_single_step_has_one_whole_number() -> None:
    over, units = plots.decoding_over_time(Decoding((Score(t=0),))), np.ones((1, 1))
    of_unit = plots.activation_map(units, agent="agent_0", order="index")
    for axis in (over.xaxis, of_unit.xaxis, of_unit.yaxis):
        low, high = sorted(axis.get_view_interval())
        assert [tick for tick in axis.get_majorticklocs() if low <= tick <= high] == [0]


def test_frames_are_in_order() -> None:
    frames = np.zeros((9, 6, 4, 3), np.uint8) + np.arange(9, dtype=np.uint8)[:, None, None, None]
    ax = plots.filmstrip(frames, n=3)
    row = ax.images[0].get_array()[0, :, 0]
    assert np.unique(row).tolist() == [0, 4, 8, 255]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["t = 0", "t = 4", "t = 8"]
    texts(ax)


def test_influence_is_written_into_the_cells() -> None:
    ax = plots.influence_map(np.array([[0.5, 0.0]]), agents=("listener_0",), sources=AGENTS, units="reward")
    assert texts(ax) == "0.5 0"
    none = plots.influence_map(np.zeros((1, 2)), agents=("listener_0",), sources=AGENTS, units="reward")
    assert none.collections[0].get_clim() == (0, 1)  # a magnitude has no colour below 0


@dataclass
class Interval:
    """An interval of numbers or of curves."""

    value: float | np.ndarray
    low: float | np.ndarray
    high: float | np.ndarray


def interval(*values: float) -> Interval:
    value = np.array(values) if len(values) > 1 else values[0]
    return Interval(value, value - 0.1, value + 0.1)


def test_sample_efficiency_shows_each_algorithm_with_its_band_and_the_levels() -> None:
    curves = {"ippo": ([1e6, 2e6], interval(-40.0, -8.0)), "qmix": ([1e6, 2e6], interval(-30.0, -9.0))}
    ax = plots.sample_efficiency(
        curves, algorithms=["other", "ippo", "qmix"], references={"random": -42.9}, title="mpe/simple_spread"
    )
    ippo, qmix = ax.get_lines()[:2]
    np.testing.assert_allclose(ippo.get_xydata(), [[1, -40], [2, -8]])
    np.testing.assert_allclose(qmix.get_ydata(), [-30, -9])
    assert ippo.get_color() == plots.algorithm_colour("qmix", ["ippo", "qmix"])  # the second of all that are compared
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(-40.1) and band[:, 1].max() == pytest.approx(-7.9)
    assert "million" in ax.get_xlabel() and "bootstrap" in ax.get_xlabel() and "random\n(-42.9)" in texts(ax)


def test_a_single_evaluation_is_a_point_of_each_algorithm() -> None:
    curves = {
        name: ([800], Interval(*np.array([[value], [value - 0.1], [value + 0.2]])))
        for name, value in (("a", 1.0), ("b", 2.0))
    }
    ax = plots.sample_efficiency(curves)
    lines = ax.get_lines()
    assert [line.get_markevery()[0] for line in lines] == [0, 0]
    bars = [line for drawn in ax.collections if isinstance(drawn, LineCollection) for line in drawn.get_segments()]
    np.testing.assert_allclose(bars, [[[800, 0.9], [800, 1.2]], [[800, 1.9], [800, 2.2]]])


def test_aggregates_are_bars_from_low_to_high() -> None:
    aggregates = {
        "IQM": {"a": interval(0.5), "b": interval(0.7)},
        "optimality gap": {"a": interval(0.5), "b": interval(0.3)},
    }
    figure = plots.aggregate_intervals(aggregates, note="e/t: 0 = random (-40), 1 = oracle (-8)")
    left, right = figure.axes
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in left.patches]
    np.testing.assert_allclose(spans, [(0.4, 0.6), (0.6, 0.8)])
    assert [text.get_text() for text in left.texts] == ["0.50", "0.70"]
    assert left.get_xlabel() == "higher is better" and right.get_xlabel() == "lower is better"
    assert [label.get_text() for label in left.get_yticklabels()] == ["a", "b"]
    assert figure.get_supxlabel() == "e/t: 0 = random (-40), 1 = oracle (-8)"
    figure.savefig(BytesIO(), format="png")


def test_a_profile_steps_at_its_thresholds() -> None:
    ax = plots.performance_profile({"a": interval(1.0, 0.5, 0.0)}, [0.0, 0.5, 1.0], note="the scale")
    line = ax.get_lines()[0]
    np.testing.assert_allclose(line.get_xydata(), [[0, 1], [0.5, 0.5], [1, 0]])
    assert line.get_drawstyle() == "steps-post" and "the scale" in ax.get_xlabel()
    texts(ax)


def test_the_probability_of_improvement_is_written_into_its_cell() -> None:
    ax = plots.improvement_map({("a", "b"): interval(0.8), ("b", "a"): interval(0.2)})
    np.testing.assert_allclose(np.ma.filled(ax.collections[0].get_array(), np.nan), [[np.nan, 0.8], [0.2, np.nan]])
    assert "0.80\n[0.70, 0.90]" in texts(ax) and ax.get_ylabel().startswith("a run of this one")
    with pytest.raises(AnalysisError, match="two or more"):
        plots.improvement_map({})


def test_one_seed_has_no_interval_in_figures() -> None:
    single = {"a": Interval(0.5, np.nan, np.nan), "b": interval(0.7)}
    assert "one seed, no interval: a" in plots.aggregate_intervals({"IQM": single}).get_supxlabel()
    assert "0.50\none seed" in texts(plots.improvement_map({("a", "b"): single["a"], ("b", "a"): single["a"]}))
    curves = {"a": ([1, 2], Interval(np.zeros(2), *np.full((2, 2), np.nan))), "b": ([1, 2], interval(0.5, 0.7))}
    assert plots.sample_efficiency(curves).get_xlabel().endswith("\none seed, no interval: a")


def test_an_agent_has_one_colour() -> None:
    assert plots.agent_colour("listener_0", AGENTS) == plots.agent_colour("listener_0", [*AGENTS, "other"])
    assert plots.agent_colour("listener_0", AGENTS) != plots.agent_colour("speaker_0", AGENTS)


def test_figures_of_an_agent_or_algorithm_that_is_not_among_all_are_errors() -> None:
    for figure in (plots.attribution_bars, plots.attribution_by_agent):
        with pytest.raises(AnalysisError, match="no agent 'listener_0'"):
            figure(attribution(), agents=["other"])
    with pytest.raises(AnalysisError, match="no agent 'listener_0'"):
        plots.decoding_bars(Decoding((Score(),)), agents=["other"])
    with pytest.raises(AnalysisError, match="no algorithm 'ippo'"):
        plots.sample_efficiency({"ippo": ([1, 2], interval(0.2, 0.4))}, algorithms=["other"])
    with pytest.raises(AnalysisError, match="no algorithm 'ippo'"):
        plots.algorithm_colour("ippo", ["other"])


def test_figures_draw_into_given_axes_and_do_not_touch_pyplot() -> None:
    ax = Figure().add_subplot()
    assert plots.attribution_bars(attribution(), ax=ax) is ax
    left, right = plots.panels(2)
    assert left.figure is right.figure
    assert "marlnb.plots" in sys.modules and not _imports_pyplot()


def _imports_pyplot() -> bool:
    names = [name for name in sys.modules if name.startswith("marlnb.plots")]
    return any(hasattr(sys.modules[name], "plt") or hasattr(sys.modules[name], "pyplot") for name in names)


def _cut_off(ax: Axes) -> list[str]:
    """Texts of a figure that extend beyond it."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    legend = ax.get_legend()
    texts = [*ax.texts, ax.title, ax._left_title, ax.xaxis.label]  # type: ignore[attr-defined]
    texts += [each.yaxis.label for each in figure.axes]  # those of colour bars too
    texts += legend.get_texts() if legend is not None else ()
    boxes = {text.get_text(): text.get_window_extent(canvas.get_renderer()) for text in texts if text.get_text()}
    width, height = canvas.get_width_height()
    return [t for t, b in boxes.items() if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1]


def test_long_names_neither_cover_the_data_nor_are_cut_off() -> None:
    names = [f"agents_with_quite_a_long_group_name_{k}" for k in range(8)]
    levels = {"random policy": -1.0, "a scripted oracle that sees all": 9.0}
    estimate, frames = interval(0.2, 0.4), [1e6, 2e6]
    drawn = [
        plots.attribution_over_time(attribution(feature_labels=names[:3])),
        plots.attribution_by_agent(attribution(agents=names[:1])),
        plots.learning_curve(frames, {name: [k, k + 1] for k, name in enumerate(names)}, references=levels),
        plots.sample_efficiency(dict.fromkeys(names, (frames, estimate)), references=levels),
        plots.performance_profile(dict.fromkeys(names, estimate), [0.0, 1.0], note="a note of the scale, " * 9),
        plots.return_distribution([1.0, 2.0, 4.0], references=levels, title="returns, each one in $"),
        plots.influence_map(np.ones((1, 2)), agents=["listener_0"], sources=AGENTS, units="reward"),
        plots.influence_map(np.ones((2, 2)), agents=AGENTS, sources=AGENTS, units="reward for a landmark, " * 3),
        plots.attribution_bars(attribution(target="the logit of a long choice, " * 4, units="logits, " * 12)),
        plots.filmstrip(np.zeros((9, 700, 100, 3), np.uint8), n=4),
        plots.filmstrip(np.zeros((9, 700, 100, 3), np.uint8), n=1),
        plots.filmstrip(np.zeros((9, 700, 700, 3), np.uint8), n=1, title="Episode 3"),
        plots.filmstrip(np.zeros((9, 70, 70, 3), np.uint8), n=1, title="one picture of an episode and its long title"),
        plots.setting_scores(
            {"algorithm.lr=1e-3 model.hidden=[256,256] algorithm.entropy_coef=0.01": interval(1.0)},
            {"algorithm.lr=1e-3 model.hidden=[256,256] algorithm.entropy_coef=0.01": [1.0]},
        ),
    ]
    assert [_cut_off(ax) for ax in drawn] == [[]] * len(drawn)
    for ax in drawn[:6]:
        legend = ax.get_legend()
        assert legend is not None and legend.get_window_extent().x0 >= ax.get_window_extent().x1
        assert not any(legend.get_window_extent().overlaps(text.get_window_extent()) for text in ax.texts)


def test_a_legend_of_many_lines_has_columns_and_leaves_the_axes_their_size() -> None:
    sizes = []
    for n in (4, 24):
        ax = plots.learning_curve([1e3, 2e3], {f"agent_{k}": [k, k + 1] for k in range(n)})
        assert _cut_off(ax) == []
        sizes.append(ax.get_window_extent().size)
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=0.05)


@pytest.mark.parametrize(
    ("names", "angle", "n_shown"),
    [
        (["red", "green", "blue"], 0, 3),
        ([f"a class with a name {k}" for k in range(8)], 35, 8),
        ([f"class_{k}" for k in range(30)], 90, 30),
        (["one line\nand a second one that is long"] * 6, 35, 6),
        ([f"{k / 10:.2f}" for k in range(40)], 0, 14),
    ],
)
def test_names_below_the_axes_do_not_touch(names: list[str], angle: float, n_shown: int) -> None:
    ax = axes(None)
    ax.bar(range(len(names)), 1.0)
    ax.set_xticks(range(len(names)), names)
    height = ax.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    finish(ax, title="t", x="x", y="y")
    assert _cut_off(ax) == []
    labels = ax.get_xticklabels()
    assert {label.get_rotation() for label in labels} == {angle} and len(labels) == n_shown
    if angle == 0:
        boxes = [label.get_window_extent() for label in labels]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert (ax.get_figure(root=True).get_figheight() > height) == (angle > 0)  # type: ignore[union-attr]


FORMULA = r"$\frac{$ and a $\alpha$"


@pytest.mark.parametrize("figure", [None, Figure])
def test_names_are_text_and_no_formulas(figure: type[Figure] | None) -> None:
    """As a formula the first part cannot be parsed, and the second one would be a Greek letter."""
    name, estimate = FORMULA, interval(0.2, 0.4)

    def ax() -> Axes | None:
        return None if figure is None else figure().add_subplot()

    drawn = [
        plots.learning_curve([1.0, 2.0], {name: [1, 2]}, references={name: 1.0}, title=name, ax=ax()),
        plots.attribution_bars(attribution(feature_labels=(name, "b", "c"), agents=(name,)), ax=ax()),
        plots.influence_map(np.eye(2), agents=(name, "b"), sources=(name, "b"), units=name, ax=ax()),
        plots.activation_map(np.eye(3), agent=name, site=name, ax=ax()),
    ]
    if figure is None:
        drawn += [
            plots.sample_efficiency({name: ([1e6, 2e6], estimate)}, references={name: 1.0}, title=name, note=name),
            plots.improvement_map({(name, "b"): interval(0.4)}, title=name),
        ]
    for shown in drawn:
        root = shown.get_figure(root=True)
        assert isinstance(root, Figure)
        root.savefig(BytesIO(), format="png")
        texts = [text for text in root.findobj(Text) if name in text.get_text()]  # type: ignore[attr-defined]
        assert texts and not any(text.get_parse_math() for text in texts)  # type: ignore[attr-defined]


def test_powers_of_ten_of_an_axis_are_formulas() -> None:
    ax = plots.learning_curve([1.0, 2.0], {"a": [1, 1000]})
    ax.set_yscale("log")
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.savefig(BytesIO(), format="png")
    labels = [label for label in ax.get_yticklabels() if label.get_text()]
    assert labels and all(label.get_parse_math() for label in labels)


def test_all_figures_are_made_by_one_class() -> None:
    package = Path(marlnb.__file__).parent
    calls = re.compile(r"(?<!Plain)\bFigure\((?!Figure)|import pyplot|matplotlib\.pyplot")
    assert [path.name for path in package.rglob("*.py") if calls.search(path.read_text())] == []
