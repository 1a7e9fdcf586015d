"""What can be decoded from hidden units, always next to the controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    INK,
    MIN_COLUMN,
    MIN_WRITTEN_COLUMN,
    MUTED,
    agent_colour,
    axes,
    choose_agent,
    count_in_whole_numbers,
    finish,
    heat_map,
    legend_outside,
    width_of_columns,
    width_with_title,
)
from marlnb.plots.marks import draw_band, level_marker, write_number

if TYPE_CHECKING:
    from marlnb.analysis.decoding.result import Decoding
    from marlnb.analysis.decoding.score import DecodingScore

MapAxis = Literal["site", "agent", "offset", "t", "label", "checkpoint"]
AXIS_LABELS = {"offset": "offset of the label (steps)", "t": "time (steps)", "checkpoint": "checkpoint (iteration)"}
CORRECTION_NAMES = {"holm": "Holm's", "fdr": "Benjamini and Hochberg's", "max": "Westfall and Young's"}


def decoding_bars(
    decoding: Decoding,
    *,
    agent: str | None = None,
    site: str | None = None,
    offset: int | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The score over all time steps next to its controls, with chance as a line.

    Args:
        agents: all agents of the environment, for this one's colour.
    """
    who, scores = _scores(decoding, agent, site, offset)
    if len(scores) != 1:
        raise AnalysisError(
            f"{len(scores)} scores for {who}, where one is drawn: choose site= and offset=; a decoding made with "
            "at='each' is drawn by decoding_over_time"
        )
    score = scores[0]
    candidates: list[tuple[str, float | None, str]] = [
        ("hidden units\n(trained)", score.score, agent_colour(who, agents or [who])),
        ("observation\nalone", score.observation, "#8C8C8C"),
        ("hidden units\n(untrained)", score.untrained, "#B4B4B4"),
        ("labels of other\nepisodes", score.shuffled, "#D2D2D2"),
        ("random labels,\nmemorised", score.control, "#E8E8E8"),
    ]
    bars = [(name, value, colour) for name, value, colour in candidates if value is not None]
    ax = axes(ax, width=1.6 + 1.25 * len(bars), height=3.8)
    for x, (_, value, colour) in enumerate(bars):
        ax.bar(x, value, color=colour, edgecolor=INK, linewidth=0.8, width=0.68)
        top = max(value, score.high if x == 0 else value)
        bottom = min(value, score.low if x == 0 else value)
        write_number(ax, x, bottom if value < 0 else top, f"{value:.2f}", below=value < 0)
    ax.errorbar(0, score.score, [[score.score - score.low], [score.high - score.score]], color=INK, capsize=5)
    ax.axhline(score.chance, color=INK, linestyle=(0, (4, 2)), linewidth=1.2)
    right, chance = ax.get_xlim()[1], f" chance\n ({score.chance:.2f})"
    ax.text(right, score.chance, chance, ha="left", va="center", fontsize=8.5, color=INK)
    ax.set_xticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8.5)
    lowest = min(0.0, *(value for _, value, _ in bars), score.low if np.isfinite(score.low) else 0.0)
    ax.set_ylim(lowest * 1.2 - (0.08 if lowest < 0 else 0), max(1.0, score.high) * 1.12)
    heading = title or f"{decoding.label} decoded from {score.site or decoding.site}"
    across = f"{who}; {score.n_rows:,} steps of {score.n_episodes} episodes, split by episode"
    ax.xaxis.label.set_fontsize(9)
    return finish(ax, title=heading, x=across, y=decoding.metric, warnings=decoding.warnings)


def decoding_over_time(
    decoding: Decoding,
    *,
    agent: str | None = None,
    site: str | None = None,
    offset: int | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What is known when: the score at each time step with its 95% interval, its controls and chance.

    A filled marker is above chance, corrected for all scores of the result (Westfall and Young's). Whether it is above
    the other controls, the verdict says.
    """
    who, scores = _scores(decoding, agent, site, offset)
    if any(score.t is None for score in scores):
        raise AnalysisError("this decoding has one score for all time steps; decode(..., at='each') has one for each")
    heading = title or f"When is {decoding.label} known? ({who}, {scores[0].site or decoding.site})"
    ax = _curve(decoding, who, scores, [int(score.t or 0) for score in scores], agents, ax)
    return finish(ax, title=heading, x="time (steps)", y=decoding.metric, warnings=decoding.warnings)


def decoding_over_offset(
    decoding: Decoding,
    *,
    agent: str | None = None,
    site: str | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How far ahead and how far back a label is decoded: the score against the offset, its controls and chance.

    A filled marker is above chance, corrected for all scores of the result (Westfall and Young's). Whether it is above
    the other controls, the verdict says.
    """
    who, scores = _scores(decoding, agent, site, None)
    if any(score.t is not None for score in scores):
        raise AnalysisError("this decoding has a score for each time step; decoding_map draws time against offset")
    heading = title or f"{decoding.label}: remembered, known, predicted\n({who}, {scores[0].site or decoding.site})"
    ax = _curve(decoding, who, scores, [score.offset for score in scores], agents, ax)
    ax.axvline(0, color=MUTED, linewidth=0.8, linestyle=":")
    across = "time of the label after that of the activations (steps)"
    return finish(ax, title=heading, x=across, y=decoding.metric, warnings=decoding.warnings)


def _curve(
    decoding: Decoding, who: str, scores: list[DecodingScore], x: list[int], agents: Sequence[str], ax: Axes | None
) -> Axes:
    """Scores with intervals against `x`, with controls and chance behind them."""
    ax = axes(ax, width=8.6)
    if len(set(x)) != len(x):
        raise AnalysisError(f"{who} has several scores at the same x: choose site= (and offset=)")
    scores, xs = [scores[k] for k in np.argsort(x)], np.sort(x)
    colour = agent_colour(who, agents or [who])
    score = np.array([s.score for s in scores])
    survives = np.array([s.survives() for s in scores])
    draw_band(ax, xs, [s.low for s in scores], [s.high for s in scores], colour=colour, alpha=0.22)
    ax.plot(xs, score, color=colour, linewidth=3.2, label="hidden units (trained)")
    dot: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6, "markeredgewidth": 1.4}
    others = " or ".join(dict.fromkeys(decoding.conclusion_of(s) for s in scores if not s.survives()))
    for rows, face, label in ((survives, colour, "above chance (corrected)"), (~survives, "white", others)):
        if rows.any():
            ax.plot(xs[rows], score[rows], markerfacecolor=face, markeredgecolor=colour, label=label, **dot)
    observation, level = [s.observation for s in scores], level_marker(xs)
    ax.plot(xs, observation, color=INK, linestyle=(0, (5, 2)), linewidth=1.5, label="observation alone", **level)
    untrained = [s.untrained for s in scores if s.untrained is not None]
    if len(untrained) == len(scores):
        dotted = (0, (1.2, 1.4))
        ax.plot(xs, untrained, color=MUTED, linestyle=dotted, linewidth=2, label="hidden units (untrained)", **level)
    shuffled, top = [s.shuffled for s in scores], [s.shuffled_high for s in scores]
    draw_band(ax, xs, shuffled, top, colour="#BDBDBD", alpha=0.6, label="labels of other episodes (mean to max)")
    chance = [s.chance for s in scores]  # can differ between steps: some steps may lack a class
    if len(set(chance)) == 1:
        ax.axhline(chance[0], color=INK, linewidth=1.0)
    else:
        ax.plot(xs, chance, color=INK, linewidth=1.0, drawstyle="steps-mid")
    ax.text(xs[-1], chance[-1], "chance ", ha="right", va="bottom", fontsize=8.5, color=INK)
    bottom = max(-1.0, min(0.0, *chance, *shuffled))  # controls far below 0 would leave no room for the scores
    ends = np.array([(s.score, s.low, s.high) for s in scores])
    ends = 1.05 * ends[np.isfinite(ends)]
    ax.set_ylim(min([bottom, *ends]), max([1.05, *ends]))
    ax.margins(x=0.02)
    legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    return ax


def decoding_map(
    decodings: Decoding | Sequence[Decoding],
    *,
    x: MapAxis = "offset",
    y: MapAxis = "site",
    correction: Literal["holm", "fdr", "max"] = "max",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Scores as a heat map, from chance to 1; a dot marks those above chance after the correction.

    If chance differs between scores (labels with other numbers of classes), the colour is
    `(score - chance) / (1 - chance)`.

    Args:
        decodings: one result, or several of one metric (other labels, other checkpoints). Several are corrected
            together by `marlnb.analysis.decoding.result.corrected_together`, or else each by itself.
        x: what the columns are: site, agent, offset, t, label or checkpoint.
        y: what the rows are.
    Raises:
        AnalysisError: the metrics differ, or two scores fall in one cell.
    """
    results = list(decodings) if isinstance(decodings, Sequence) else [decodings]
    metrics = sorted({result.metric for result in results})
    if len(metrics) != 1:
        raise AnalysisError(f"scores of different metrics share no scale: {metrics}")
    cells: dict[tuple[object, object], DecodingScore] = {}
    for result in results:
        for score in result.scores:
            cell = (_coordinate(y, result, score), _coordinate(x, result, score))
            if cell in cells:
                raise AnalysisError(f"two scores at {y}={cell[0]}, {x}={cell[1]}: choose other axes, or one agent")
            cells[cell] = score
    rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))
    chances = {score.chance for score in cells.values()}
    is_relative = len(chances) > 1
    lowest = 0.0 if is_relative else chances.pop()
    longest, is_wide = max(len(str(row)) for row in rows), len(columns) > 12
    columns_width = width_of_columns(len(columns), 0.42 if is_wide else 0.62, narrowest=MIN_COLUMN)
    is_written = columns_width / len(columns) >= MIN_WRITTEN_COLUMN
    values, text = np.full((len(rows), len(columns)), np.nan), np.full((len(rows), len(columns)), "", dtype=object)
    between = "\n" if is_wide else " "
    for (row, column), score in cells.items():
        k = rows.index(row), columns.index(column)
        if not is_relative:
            values[k] = score.score
        else:  # 0 where chance is 1 and nothing can be gained
            values[k] = (score.score - score.chance) / (1 - score.chance) if score.chance < 1 else 0.0
        dot = "●" if score.survives(correction) else ""
        text[k] = f"{score.score:.2f}{between}{dot}".strip() if is_written else dot
    width = 2.6 + 0.07 * longest + columns_width
    heading = title or f"{', '.join(dict.fromkeys(result.label for result in results))}: where and when it is decoded"
    width = max(5.2, width, width_with_title(heading, left=0.6 + 0.07 * longest))
    ax = axes(ax, width=width, height=max(3.2, 1.6 + 0.45 * len(rows)))
    scale = "share of the way from chance to 1" if is_relative else "from chance to 1"
    row_names, column_names = ([str(name) for name in names] for names in (rows, columns))
    label = f"{metrics[0]}\n({scale})"
    heat_map(ax, values, rows=row_names, columns=column_names, text=text, low=lowest, high=1, label=label,
             font_size=min(8.0, 72 * columns_width / len(columns)))  # fmt: skip
    across = f"{AXIS_LABELS.get(x, x)}\n● above chance by {CORRECTION_NAMES[correction]} correction (p ≤ 0.05)"
    if missing := next((result.missing_shuffles for result in results if result.missing_shuffles), ""):
        across += f"\ntoo few shuffles: {missing}"
    ax.xaxis.label.set_fontsize(9)
    warnings = list(dict.fromkeys(warning for result in results for warning in result.warnings))
    return finish(ax, title=heading, x=across, y=AXIS_LABELS.get(y, y), grid="", warnings=warnings)


def _coordinate(axis: MapAxis, result: Decoding, score: DecodingScore) -> object:
    if axis not in get_args(MapAxis):
        raise AnalysisError(unknown("axis of a decoding map", axis, get_args(MapAxis)))
    return getattr(result if axis in ("label", "checkpoint") else score, axis)


def _scores(
    decoding: Decoding, agent: str | None, site: str | None, offset: int | None
) -> tuple[str, list[DecodingScore]]:
    """The agent, and its scores at this site and offset (None: at all)."""
    who = choose_agent(agent, decoding.agents, "decoding")
    if site is not None and site not in decoding.sites:
        raise AnalysisError(unknown("site in this decoding", site, decoding.sites))
    scores = [s for s in decoding.scores if s.agent == who and site in (None, s.site) and offset in (None, s.offset)]
    if not scores:
        raise AnalysisError(f"no score of {who} at offset {offset}")
    return who, scores
