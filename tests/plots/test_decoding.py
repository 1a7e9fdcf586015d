"""Figures of decodings and concepts show the given numbers, with warnings across them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from marlnb import plots
from marlnb.analysis.concepts.result import ConceptScore, Tcav
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.decoding.score import Control, DecodingScore, Gain
from marlnb.errors import AnalysisError
from marlnb.plots.canvas import OKABE_ITO

AGENTS = ("a_0", "b_0")


def score(
    site: str = "b/h1", offset: int = 0, t: int | None = None, value: float = 0.8, p: float = 0.05
) -> DecodingScore:
    gains = (gain("observation", 0.6, value), gain("untrained network", 0.5, value))
    return DecodingScore(
        "b_0", t, 500, 60, value, value - 0.1, value + 0.1, 0.25, 0.3, 0.4, p, 0.35, site, offset, 1.0, p, p, gains
    )  # fmt: skip


def gain(control: Control, of_control: float, of_site: float) -> Gain:
    difference = of_site - of_control
    return Gain(control, of_control, difference, difference - 0.01, difference + 0.01, 0.01, 0.01)


def decoding(*scores: DecodingScore, **changes: object) -> Decoding:
    made = Decoding("b/h1, b/h2", "goal", "classification", ("r", "g", "b", "w"), 5, 19, scores, checkpoint=10)
    return replace(made, **changes)  # type: ignore[arg-type]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


SITES = decoding(score(), score("b/h2", value=0.5, p=0.4), score("b/h2", offset=3, value=0.7))
OFFSETS = decoding(score(offset=2, value=0.6, p=0.5), score(offset=-2, value=0.4), score())


def test_bars_of_one_site_and_offset() -> None:
    ax = plots.decoding_bars(SITES, site="b/h2", offset=3, agents=AGENTS)
    assert [bar.get_height() for bar in ax.patches] == [0.7, 0.6, 0.5, 0.3, 0.35]
    assert ax.get_title(loc="left") == "goal decoded from b/h2"
    assert to_hex(ax.patches[0].get_facecolor()).upper() == OKABE_ITO[1]
    with pytest.raises(AnalysisError, match="2 scores for b_0"):
        plots.decoding_bars(SITES, site="b/h2")
    with pytest.raises(AnalysisError, match="did you mean 'b/h2'"):
        plots.decoding_bars(SITES, site="b/h3")
    with pytest.raises(AnalysisError, match="at offset 7"):
        plots.decoding_bars(SITES, offset=7)


def test_the_line_of_chance_strikes_through_no_number() -> None:
    ax = plots.decoding_bars(decoding(replace(score(), shuffled=0.2)))
    (number,) = (text for text in ax.texts if text.get_text() == "0.20")
    box, (line,) = number.get_bbox_patch(), (line for line in ax.lines if line.get_linestyle() == "--")
    assert box is not None and to_hex(box.get_facecolor()) == "#ffffff" and number.get_zorder() > line.get_zorder()


def test_the_curve_over_offsets_is_sorted_and_fills_surviving_markers() -> None:
    ax = plots.decoding_over_offset(OFFSETS, agents=AGENTS)
    drawn = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in ax.lines}
    assert drawn["hidden units (trained)"] == [[-2, 0.4], [0, 0.8], [2, 0.6]]
    assert drawn["above chance (corrected)"] == [[-2, 0.4], [0, 0.8]]
    assert drawn["observation alone"] == [[-2, 0.6], [0, 0.6], [2, 0.6]]
    band = next(artist for artist in ax.collections if isinstance(artist, PolyCollection)).get_paths()[0].vertices
    assert np.asarray(band)[:, 1].min() == pytest.approx(0.3) and np.asarray(band)[:, 1].max() == pytest.approx(0.9)
    with pytest.raises(AnalysisError, match="several scores at the same x"):
        plots.decoding_over_offset(decoding(score(), score("b/h2")))
    with pytest.raises(AnalysisError, match="decoding_map draws time against offset"):
        plots.decoding_over_offset(decoding(score(t=0)))


def test_scores_of_too_few_shuffles_are_named_as_such() -> None:
    scores = [score(t=t, value=0.9, p=0.25) for t in range(3)]
    for n_shuffles, name in ((3, "too few shuffles"), (19, "not above chance")):
        ax = plots.decoding_over_time(decoding(*scores, n_shuffles=n_shuffles))
        assert [line.get_label() for line in ax.lines][1] == name
        across = plots.decoding_map(decoding(*scores, n_shuffles=n_shuffles), x="t", y="agent").get_xlabel()
        assert ("too few shuffles: p = 0.05 needs 19 shuffles of the labels, got 3" in across) == (n_shuffles == 3)


def test_the_curve_over_time_of_one_site() -> None:
    result = decoding(*(score(site, t=t, value=0.3 + t / 10) for site in ("b/h1", "b/h2") for t in range(3)))
    ax = plots.decoding_over_time(result, site="b/h2")
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 0.3], [1, 0.4], [2, 0.5]])
    assert "b/h2" in ax.get_title(loc="left")


def test_axes_reach_down_to_negative_scores_and_intervals() -> None:
    result = decoding(*(replace(score("b/h1", t=t, value=t - 5.0), low=t - 6.0) for t in range(3)))
    assert plots.decoding_over_time(result).get_ylim()[0] < -6
    unsure = decoding(*(replace(score("b/h1", t=t, value=0.1), low=-0.9, high=1.2) for t in range(3)))
    bottom, top = plots.decoding_over_time(unsure).get_ylim()
    assert bottom < -0.9 and top > 1.2
    bars = plots.decoding_bars(decoding(replace(score(value=-0.2), low=-0.9)))
    assert bars.get_ylim()[0] < -0.9
    (number,) = [text for text in bars.texts if text.get_text() == "-0.20"]
    assert number.get_position()[1] < -0.9  # below its interval


def test_the_map_shows_each_score_in_its_cell_with_its_dot() -> None:
    ax = plots.decoding_map(SITES, x="offset", y="site")
    values = np.ma.filled(ax.collections[0].get_array(), np.nan)  # type: ignore[arg-type]
    np.testing.assert_array_equal(values, [[0.8, np.nan], [0.5, 0.7]])
    assert ax.collections[0].get_clim() == (0.25, 1)
    assert texts(ax) == ["0.80 ●", "0.50", "0.70 ●"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b/h1", "b/h2"]
    holm = plots.decoding_map(SITES, correction="holm")
    assert texts(holm) == ["0.80", "0.50", "0.70"] and "Holm's" in holm.get_xlabel()
    later = decoding(score(value=0.9), checkpoint=130)
    several = plots.decoding_map([decoding(score()), later], x="checkpoint", y="agent")
    np.testing.assert_array_equal(several.collections[0].get_array(), [[0.8, 0.9]])  # type: ignore[arg-type]


def test_a_map_of_many_steps_has_dots_alone() -> None:
    ax = plots.decoding_map(decoding(*(score(t=t, p=0.01 if t > 50 else 0.5) for t in range(200))), x="t")
    assert texts(ax)[49:53] == ["", "", "●", "●"]
    assert ax.figure.get_figwidth() < 20  # type: ignore[union-attr]


def test_a_misleading_map_is_an_error() -> None:
    with pytest.raises(AnalysisError, match=r"two scores at agent=b_0, offset=0"):
        plots.decoding_map(SITES, y="agent")
    with pytest.raises(AnalysisError, match="share no scale"):
        plots.decoding_map([SITES, decoding(score(), kind="regression")])
    with pytest.raises(AnalysisError, match="did you mean 'offset'"):
        plots.decoding_map(SITES, x="ofset")  # type: ignore[arg-type]


def test_the_label_of_the_colour_scale_is_within_the_figure() -> None:
    ax = plots.decoding_map(decoding(*(score(t=t) for t in range(25))), x="t", y="agent")
    figure = ax.figure
    figure.draw_without_rendering()
    inside = figure.bbox
    for one in figure.axes:
        box = one.yaxis.label.get_window_extent()
        assert inside.y0 <= box.y0 and box.y1 <= inside.y1 and box.x1 <= inside.x1
    assert inside.width / figure.dpi < 16


def test_a_small_map_fits_its_title_and_its_warning() -> None:
    warned = ("only 12 episodes, of which fewer than twenty can be held out, so that intervals are much too narrow",)
    named = decoding(score(), score("b/h2"), label="goal of the listener's partner, a landmark", warnings=warned)
    ax = plots.decoding_map(named, x="offset", y="site")
    ax.figure.draw_without_rendering()
    inside = ax.figure.bbox
    for one in (ax._left_title, ax.texts[-1], *(each.yaxis.label for each in ax.figure.axes)):  # type: ignore[attr-defined]
        box = one.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1, one


CONCEPT = ConceptScore("b_0", 500, 60, 0.9, 0.8, 1.0, 0.45, 0.1, 0.7, 0.75, 0.5, 0.01, 0.02)
TCAV = Tcav("b/h1", "near", "logit of up", "filter", 20, (CONCEPT, replace(CONCEPT, agent="a_0", p_holm=0.4)))


def test_concepts_are_drawn_in_front_of_random_ones() -> None:
    ax = plots.concept_bars(TCAV, agents=AGENTS)
    bands, bars = ax.patches[0::2], ax.patches[1::2]
    assert [(bar.get_y(), bar.get_height()) for bar in bands] == [(0.1, pytest.approx(0.6))] * 2
    assert [bar.get_height() for bar in bars] == [0.9, 0.9]
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [OKABE_ITO[1], OKABE_ITO[0]]
    assert texts(ax) == ["0.90*", "0.90"]
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "near\nb_0\naccuracy 0.75",
        "near\na_0\naccuracy 0.75",
    ]
    assert ax.get_title(loc="left").startswith("logit of up: does it rise")
    doubted = plots.concept_bars(replace(TCAV, score_warnings=("signs alone",)))
    assert any("NOT TO BE TRUSTED\nsigns alone" in text for text in texts(doubted))


def test_several_outputs_are_named() -> None:
    down = replace(TCAV, target="logit of down", warnings=("told no better than chance",))
    ax = plots.concept_bars([TCAV, down])
    names = [label.get_text().split("\n")[0] for label in ax.get_xticklabels()]
    assert names == ["logit of up", "logit of up", "logit of down", "logit of down"]
    assert any("NOT TO BE TRUSTED\ntold no better" in text for text in texts(ax))


def test_effects_are_drawn_in_front_of_shuffled_episodes() -> None:
    up = replace(CONCEPT, effect=0.6, effect_low=0.4, effect_high=0.9, effect_random=0.2, p_effect=0.01)
    none = replace(up, agent="a_0", effect=-0.1, effect_low=-0.3, effect_high=0.1, p_effect=1.0)
    ax = plots.concept_effects(replace(TCAV, scores=(up, none), score_warnings=("signs alone",)), agents=AGENTS)
    bands, bars = ax.patches[0::2], ax.patches[1::2]
    assert [(bar.get_y(), bar.get_height()) for bar in bands] == [(-0.2, 0.4)] * 2
    assert [bar.get_height() for bar in bars] == [0.6, -0.1]
    assert texts(ax) == ["*"] and ax.texts[0].xy == (0, 0.9)  # type: ignore[attr-defined]
    assert "grow towards" in ax.get_title(loc="left")
    with pytest.raises(AnalysisError, match=r"effect of near on b_0: call concept_activation with n_shuffles > 0"):
        plots.concept_effects(TCAV)


def test_warnings_are_in_every_figure() -> None:
    warned = ("only 12 episodes",)
    every = [
        plots.decoding_bars(decoding(score(), warnings=warned)),
        plots.decoding_over_time(decoding(score(t=0), score(t=1), warnings=warned)),
        plots.decoding_over_offset(replace(OFFSETS, warnings=warned)),
        plots.decoding_map([decoding(score(), warnings=warned), decoding(score(), checkpoint=2)], x="checkpoint"),
    ]
    assert all(texts(ax)[-1] == "NOT TO BE TRUSTED\nonly 12 episodes" for ax in every)


def test_labels_with_different_chance_have_one_colour_at_chance() -> None:
    """At chance, each is equally dark, whatever its number of classes."""
    four = decoding(score(value=0.25), score("b/h2", value=1.0))
    two = decoding(replace(score(value=0.5), chance=0.5), replace(score("b/h2", value=0.75), chance=0.5), label="met")
    ax = plots.decoding_map([four, two], x="label", y="site")
    np.testing.assert_allclose(ax.collections[0].get_array(), [[0, 0], [1, 0.5]])
    assert "share of the way from chance to 1" in ax.collections[0].colorbar.ax.get_ylabel()  # type: ignore[union-attr]
    same = plots.decoding_map(four, x="agent", y="site")
    np.testing.assert_allclose(same.collections[0].get_array(), [[0.25], [1.0]])


def test_the_line_of_chance_follows_chance() -> None:
    some = decoding(replace(score(t=0), chance=0.5), score(t=1), score(t=2))
    ax = plots.decoding_over_time(some)
    assert any(np.asarray(line.get_xydata()).tolist() == [[0, 0.5], [1, 0.25], [2, 0.25]] for line in ax.lines)
