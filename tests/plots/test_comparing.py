"""Figures of comparisons show the given numbers, with warnings across them."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text

from marlnb import plots
from marlnb.analysis.benchmarking.statistics import Estimate
from marlnb.analysis.communication.communication_result import Communication
from marlnb.analysis.representations.development_result import Development
from marlnb.analysis.representations.embedding import Embedding
from marlnb.analysis.representations.event_average_result import EventAverage
from marlnb.analysis.representations.roles_result import Clustering, Roles
from marlnb.analysis.representations.similarity_result import SimilarityMatrix
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.analysis.stats.mutual_information import MutualInformation
from marlnb.errors import AnalysisError

AGENTS = ("a_0", "a_1", "b_0")
ONES = np.ones((2, 2))
MATRIX = SimilarityMatrix(
    "cka", ("x", "y"), ("x", "z"), np.array([[1, 0.25], [0.5, 0.75]]), ONES, ONES, 0.1 * ONES, ONES, 5, 30
)
CURVE = np.array([[0.0, 2], [1, 1], [2, 0]])
TUNING = Tuning(
    "s",
    "a_0",
    AGENTS,
    "goal",
    True,
    ("r", "g", "b"),
    np.arange(3.0),
    CURVE,
    CURVE - 0.1,
    CURVE + 0.1,
    np.array([0.3, 0.8]),
    np.zeros(2),
    np.array([0.2, 0.01]),
    np.ones(3),
    np.ones(3),
    np.zeros(2),
    np.ones(2),
    20,
    30,
)
LAGS = np.arange(-1, 2)
EVENT = EventAverage(
    "a/actor/h",
    "a_0",
    AGENTS,
    "touch",
    LAGS,
    ("unit 0", "unit 1"),
    CURVE,
    CURVE - 1,
    CURVE + 1,
    0 * CURVE,
    0 * CURVE - 0.5,
    0 * CURVE + 0.5,
    np.array([0.01, 0.5]),
    np.array([4, 5, 3]),
    9,
    0,
)
MAP = Embedding(
    method="pca",
    site="s",
    agents=("a_0", "a_1"),
    all_agents=AGENTS,
    points=np.arange(8.0).reshape(4, 2),
    episode=np.zeros(4, int),
    t=np.arange(4),
    agent_index=np.array([0, 0, 1, 1]),
    color=np.array([0.0, 0, 1, 1]),
    color_name="",
    color_names=(),
    color_is_class=True,
    explained=np.array([0.6, 0.3]),
    trust=0.9,
    n_rows=4,
)
ROLES = Roles(
    of="behaviour",
    agents=AGENTS,
    all_agents=AGENTS,
    features=("f",),
    distances=np.array([[0, 0.1, 2], [0.1, 0, 3], [2, 3, 0]]),
    team=np.array([0, 0, 1]),
    agents_clustering=Clustering(2, 0.5, 0.0, 0.01, 1.0),
    window=np.zeros(6, int),
    agent_index=np.tile(np.arange(3), 2),
    episode=np.zeros(6, int),
    t=np.zeros(6, int),
    role=np.array([0, 0, 1, 0, 0, 1]),
    points=np.arange(12.0).reshape(6, 2),
    states_clustering=Clustering(2, 0.3, 0.2, 0.01, 0.9, 1.05),
    profile=np.ones((2, 1)),
    taken=np.array([[1.0, 0], [1, 0], [0, 1]]),
    division=2.0,
    division_chance=1.7,
    division_p=0.01,
    n_episodes=2,
)
BITS = MutualInformation("message", "goal", 1.25, 1.1, 1.4, 0.03, 1.2, 0.8, 0.01, 1.5, 1.5)
TALK = Communication(
    speaker="a_0",
    listener="b_0",
    message="action",
    goal="goal",
    lag=1,
    signalling=BITS,
    listening=BITS,
    following=BITS,
    consistency=None,
    influence=Interval(0.62, 0.6, 0.7),
    influence_at=np.ones(2),
    times=np.arange(2),
    context_independence=0.5,
    code=np.array([[3.0, 1], [1, 3]]),
    messages=("m0", "m1"),
    goals=("r", "g"),
    n_rows=8,
    n_episodes=4,
)
GROWTH = Development(
    *("goal decoded", ("s", "u"), np.array([10, 20]), MATRIX.values, ONES, ONES, 0.3 * ONES, "observation alone"),
    *(0.2 * ONES, {}),
)


def drawn(ax: Axes) -> str:
    ax.figure.savefig(BytesIO(), format="png")
    assert ax.get_title(loc="left")
    return " ".join(text.get_text() for text in ax.texts)


def test_figures_show_the_given_numbers() -> None:
    assert "0.25\n(0.10)" in drawn(plots.similarity_map(MATRIX))
    assert "in brackets" in plots.similarity_map(MATRIX).get_xlabel()
    names, many = tuple("abcdefghijklm"), np.ones((13, 13))
    large = replace(MATRIX, rows=names, columns=names, values=many, shuffled=many)
    assert drawn(plots.similarity_map(large)) == plots.similarity_map(large).get_xlabel() == ""
    assert "0.25" in drawn(plots.development_map(GROWTH))
    curves = plots.development_curves(GROWTH)
    assert [line.get_ydata()[1] for line in curves.lines] == [0.25, 0.75, 0.3, 0.2]
    assert "0.75" in drawn(plots.code_book(TALK)) and "0.25" in drawn(plots.code_book(TALK))
    bars = drawn(plots.information_bars(TALK))
    assert bars.count("1.20*") == 3 and "0.62" in bars
    np.testing.assert_array_equal(plots.embedding_map(MAP).collections[1].get_offsets(), MAP.points[2:])
    response = plots.event_response(EVENT, channels=["unit 1"])
    assert response.lines[0].get_ydata().tolist() == [2, 1, 0] and "3 to 5 events a lag" in response.get_xlabel()


def test_each_site_has_its_own_controls() -> None:
    control = np.array([[1.0, 0.9], [0.6, 0.5]])
    lines = plots.development_curves(replace(GROWTH, control=control, untrained=np.nan * ONES)).lines
    drawn = [(line.get_color(), list(line.get_ydata())) for line in lines]
    assert drawn[2:4] == [(drawn[0][0], [1, 0.9]), (drawn[1][0], [0.6, 0.5])]
    assert lines[4].get_label() == "observation alone\n(in the colour of its site)" and len(lines) == 5


def test_classes_named_after_colours_have_these_colours() -> None:
    def drawn_in(*names: str) -> list[str]:
        ax = plots.embedding_map(replace(MAP, color_name="goal", color_names=names))
        return [to_hex(points.get_facecolor()[0]).upper() for points in ax.collections]

    assert drawn_in("green", "blue") == ["#009E73", "#0072B2"]
    assert drawn_in("green", "near") == ["#0072B2", "#E69F00"]  # some that are not: all as they come


def test_figures_are_dark_on_white_in_a_dark_style() -> None:
    estimates = {"IQM": {"mappo": Estimate(0.5, 0.4, 0.6)}}
    with style.context("dark_background"):
        figures = [
            plots.aggregate_intervals(estimates),
            plots.activation_map(np.eye(3), agent="a").figure,
            plots.embedding_map(MAP).figure,
            plots.embedding_map(replace(MAP, color_is_class=False)).figure,
        ]
    for figure in figures:
        figure.savefig(BytesIO(), format="png")
        texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert len(texts) > 5 and [text.get_text() for text in texts if max(to_rgb(text.get_color())) > 0.5] == []
        assert {to_hex(face.get_facecolor()) for face in (figure, figure.axes[0])} == {"#ffffff"}


def test_legends_are_outside_the_axes() -> None:
    for ax in (
        *(plots.development_curves(GROWTH), plots.tuning_curves(TUNING), plots.embedding_map(MAP)),
        *(plots.event_response(EVENT), plots.role_map(ROLES)),
    ):
        drawn(ax)
        legend = ax.get_legend()
        assert legend is not None
        assert legend.get_window_extent().x0 >= ax.get_window_extent().x1 > 0  # pixels
    marks = plots.embedding_map(MAP).get_legend()
    assert marks is not None and {mark.get_sizes()[0] for mark in marks.legend_handles} == {36.0}  # type: ignore[union-attr]


def test_numbers_of_little_information_stay_within_the_axes() -> None:
    """Two hundredths of a bit above a bar are far above an axis that ends at one hundredth."""
    for bits in (replace(BITS, corrected=0.004, low=0.0, high=0.01), BITS):
        ax = plots.information_bars(replace(TALK, signalling=bits, listening=bits, following=bits, influence=None))
        assert "*" in drawn(ax)
        tops = [text.get_window_extent().y1 for text in ax.texts]
        assert len(tops) == 3 and max(tops) < ax.get_window_extent().y1


def test_lags_are_whole_numbers_of_steps() -> None:
    lags = np.arange(-10, 11)
    many = {name: np.zeros((21, 2)) for name in ("mean", "low", "high", "control", "control_low", "control_high")}
    ax = plots.event_response(replace(EVENT, lags=lags, n_events=np.ones(21, int), **many))
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_units_are_named_with_their_strength() -> None:
    ax = plots.tuning_curves(TUNING)
    names = [text.get_text() for text in ax.get_legend().get_texts()]  # type: ignore[union-attr]
    assert names[0].startswith("unit 1: η² 0.80") and names[1].endswith("not beyond chance")
    assert "1 of 2 units tuned" in plots.tuning_map(TUNING).get_title(loc="left")
    with pytest.raises(AnalysisError, match="no unit 7"):
        plots.tuning_curves(TUNING, units=[7])
    with pytest.raises(AnalysisError, match="did you mean"):
        plots.event_response(EVENT, channels=["unit 9"])


def test_points_of_many_units_stay_at_their_class() -> None:
    many = replace(TUNING, strength=np.ones(12), p_value=np.zeros(12), shuffled=np.zeros(12))
    many = replace(many, **{name: np.tile(CURVE[:, :1], 12) for name in ("curve", "low", "high")})
    x = np.array([points[0].get_xdata() for points in plots.tuning_curves(many, units=range(12)).containers])
    assert x.shape == (12, 3) and (np.abs(x - np.arange(3)) < 0.4).all()


def test_bars_that_lie_on_one_side_of_the_mean_are_drawn() -> None:
    """A percentile interval of few episodes may leave the mean outside."""
    ax = plots.tuning_curves(replace(TUNING, low=CURVE + 0.01), units=[0])
    ends = ax.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose([end[:, 1] for end in ends], np.stack([CURVE[:, 0], CURVE[:, 0] + 0.1], axis=1))


def test_titles_say_whether_roles_were_detected() -> None:
    assert "3.00" in drawn(plots.team_map(ROLES)) and "teams found" in plots.team_map(ROLES).get_title(loc="left")
    assert "a continuum, not roles" in plots.role_map(ROLES).get_title(loc="left")
    assert "2.00 (independently: 1.70)" in plots.role_shares(ROLES).get_xlabel()
    none = replace(ROLES, agents_clustering=Clustering(2, 0.0, 0.0, 0.6, 0.1))
    assert "no teams beyond chance" in plots.team_map(none).get_title(loc="left")


def test_warnings_are_across_the_figure() -> None:
    doubt = ("only 3 episodes",)
    figures = [
        plots.similarity_map(replace(MATRIX, warnings=doubt)),
        plots.tuning_curves(replace(TUNING, warnings=doubt)),
        plots.tuning_map(replace(TUNING, warnings=doubt)),
        plots.event_response(replace(EVENT, warnings=doubt)),
        plots.embedding_map(replace(MAP, warnings=doubt)),
        plots.team_map(replace(ROLES, warnings=doubt)),
        plots.role_map(replace(ROLES, warnings=doubt)),
        plots.role_shares(replace(ROLES, warnings=doubt)),
        plots.code_book(replace(TALK, warnings=doubt)),
        plots.information_bars(replace(TALK, warnings=doubt)),
        plots.development_map(replace(GROWTH, warnings=doubt)),
        plots.development_curves(replace(GROWTH, warnings=doubt)),
    ]
    for ax in figures:
        assert "NOT TO BE TRUSTED\nonly 3 episodes" in drawn(ax)
    assert "no unit is tuned beyond chance" in drawn(plots.tuning_map(replace(TUNING, p_value=np.ones(2))))


def test_a_map_of_many_values_is_shaded_and_hides_no_point() -> None:
    """Sixty episodes do not get sixty colours, and points without a label are drawn too."""
    points = np.random.default_rng(0).standard_normal((60, 2))
    many = replace(MAP, points=points, color=np.arange(60.0), color_name="episode", color_names=(), color_is_class=True)
    ax = plots.embedding_map(many)
    assert ax.get_legend() is None and len(ax.collections) == 1
    some = np.where(np.arange(60) < 20, np.nan, np.arange(60) % 12.0)
    for is_class in (True, False):
        ax = plots.embedding_map(replace(many, color=some, color_is_class=is_class))
        assert sum(len(drawn.get_offsets()) for drawn in ax.collections) == 60
        entries = [text.get_text() for text in ax.get_legend().get_texts()]  # type: ignore[union-attr]
        assert entries[0] == "unknown (20)"
    drawn = plots.embedding_map(replace(many, color=np.arange(60) % 12.0)).collections
    looks = {(str(one.get_facecolor()[0]), str(one.get_paths()[0].vertices)) for one in drawn}
    assert len(looks) == len(drawn) == 12


def test_more_than_sixteen_agents_have_names() -> None:
    agents = tuple(f"a_{k}" for k in range(20))
    crowd = replace(MAP, agents=agents, all_agents=agents, points=np.eye(20), color=np.arange(20.0))
    entries = [text.get_text() for text in plots.embedding_map(crowd).get_legend().get_texts()]  # type: ignore[union-attr]
    assert entries == list(agents)


def test_classes_below_zero_have_their_number() -> None:
    ax = plots.embedding_map(replace(MAP, color=np.array([-1.0, -1, 0, 2]), color_name="side"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["-1", "0", "2"]  # type: ignore[union-attr]


def test_many_warnings_leave_the_figure_readable() -> None:
    """Thirty lines of warnings would shrink its axes."""
    ax = plots.embedding_map(replace(MAP, warnings=tuple(f"reason {k}" for k in range(30))))
    lines = next(text.get_text() for text in ax.texts if "NOT TO BE TRUSTED" in text.get_text()).splitlines()
    expected = [f"reason {k}" for k in range(4)]
    assert lines == ["NOT TO BE TRUSTED", *expected, "and 26 more: see the result's warnings"]
