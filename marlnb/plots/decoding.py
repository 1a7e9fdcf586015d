"""What can be read from hidden units, always beside the controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    INK,
    MUTED,
    OKABE_ITO,
    SEQUENTIAL,
    agent_colour,
    alarm,
    axes,
    finish,
    legend_beside,
    width_with_title,
)
from marlnb.plots.results import DecodingResult, Score

MapAxis = Literal["site", "agent", "offset", "t", "label", "checkpoint"]


def decoding_bars(
    decoding: DecodingResult,
    *,
    agent: str | None = None,
    site: str | None = None,
    offset: int | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The score over all time steps beside its controls, with chance as a line.

    Args:
        agents: all agents of the environment, for this one's colour.
    """
    who, found = _scores(decoding, agent, site, offset)
    if len(found) != 1:
        raise AnalysisError(f"{len(found)} scores for {who}: decoding_over_time draws a decoding made with at='each'")
    score = found[0]
    bars: list[tuple[str, float | None, str]] = [
        ("hidden units\n(trained)", score.score, agent_colour(who, agents) if who in agents else OKABE_ITO[0]),
        ("observation\nalone", score.observation, "#8C8C8C"),
        ("hidden units\n(untrained)", score.untrained, "#B4B4B4"),
        ("labels of other\nepisodes", score.shuffled, "#D2D2D2"),
        ("random label an\nepisode, memorised", score.control, "#E8E8E8"),
    ]
    shown = [(name, value, colour) for name, value, colour in bars if value is not None]
    ax = axes(ax, width=1.6 + 1.25 * len(shown), height=3.8)
    for place, (_, value, colour) in enumerate(shown):
        ax.bar(place, value, color=colour, edgecolor=INK, linewidth=0.8, width=0.68)
        top = max(value, score.high if place == 0 else value)
        at, edge = (value - 0.02, "top") if value < 0 else (top + 0.02, "bottom")
        ax.text(place, at, f"{value:.2f}", ha="center", va=edge, fontsize=9.5, color=INK)
    ax.errorbar(0, score.score, [[score.score - score.low], [score.high - score.score]], color=INK, capsize=5)
    ax.axhline(score.chance, color=INK, linestyle=(0, (4, 2)), linewidth=1.2)
    side = ax.get_xlim()[1]
    ax.text(side, score.chance, f" chance\n ({score.chance:.2f})", ha="left", va="center", fontsize=8.5, color=INK)
    ax.set_xticks(range(len(shown)), [name for name, _, _ in shown], fontsize=8.5)
    lowest = min(0.0, *(value for _, value, _ in shown))
    ax.set_ylim(lowest * 1.2 - (0.08 if lowest < 0 else 0), max(1.0, score.high) * 1.12)
    heading = title or f"{decoding.label} read from {score.site or decoding.site}"
    finish(ax, title=heading, x="", y=decoding.metric)
    ax.set_xlabel(f"{who}; {score.n_rows:,} steps of {score.n_episodes} episodes, split by episode", fontsize=9)
    alarm(ax, decoding.warnings)
    return ax


def decoding_over_time(
    decoding: DecodingResult,
    *,
    agent: str | None = None,
    site: str | None = None,
    offset: int | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What is known when: the score at each time step with its 95% interval, beside its controls and chance.

    A filled marker survives the correction for all scores of the result (Westfall and Young's).
    """
    who, found = _scores(decoding, agent, site, offset)
    if any(score.t is None for score in found):
        raise AnalysisError("this decoding is of all time steps together; decode(..., at='each') has one for each")
    heading = title or f"When is {decoding.label} known? ({who}, {found[0].site or decoding.site})"
    ax = _curve(decoding, who, found, [int(score.t or 0) for score in found], agents, ax)
    return finish(ax, title=heading, x="time (steps)", y=decoding.metric)


def decoding_over_offset(
    decoding: DecodingResult,
    *,
    agent: str | None = None,
    site: str | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How far ahead, and how far back, a label is read: the score against the offset, beside its controls and chance.

    A filled marker survives the correction for all scores of the result (Westfall and Young's).
    """
    who, found = _scores(decoding, agent, site, None)
    if any(score.t is not None for score in found):
        raise AnalysisError("this decoding has a score for each time step; decoding_map draws time against offset")
    heading = title or f"{decoding.label}: remembered, known, foreseen\n({who}, {found[0].site or decoding.site})"
    ax = _curve(decoding, who, found, [score.offset for score in found], agents, ax)
    ax.axvline(0, color=MUTED, linewidth=0.8, linestyle=":")
    return finish(ax, title=heading, x="the label's time after the activations' (steps)", y=decoding.metric)


def _curve(
    decoding: DecodingResult, who: str, found: list[Score], x: list[int], agents: Sequence[str], ax: Axes | None
) -> Axes:
    """Scores with intervals against `x`, controls and chance behind them."""
    ax = axes(ax, width=8.6)
    if len(set(x)) != len(x):
        raise AnalysisError(f"{who} has several scores at one place: choose site= (and offset=)")
    order = np.argsort(x)
    found, places = [found[k] for k in order], np.sort(x)
    colour = agent_colour(who, agents) if who in agents else OKABE_ITO[0]
    score = np.array([s.score for s in found])
    survived = np.array([s.survives() for s in found])
    low, high = [s.low for s in found], [s.high for s in found]
    ax.fill_between(places, low, high, color=colour, alpha=0.22, linewidth=0)
    ax.plot(places, score, color=colour, linewidth=3.2, label="hidden units (trained)")
    dot: dict[str, Any] = {
        "linestyle": "",
        "marker": "o",
        "markersize": 6,
        "markeredgecolor": colour,
        "markeredgewidth": 1.4,
    }
    for which, face, told in ((survived, colour, "survives correction"), (~survived, "white", "does not survive it")):
        if which.any():
            ax.plot(places[which], score[which], markerfacecolor=face, label=told, **dot)
    seen = [s.observation for s in found]
    ax.plot(places, seen, color=INK, linestyle=(0, (5, 2)), linewidth=1.5, label="observation alone")
    untrained = [s.untrained for s in found if s.untrained is not None]
    if len(untrained) == len(found):
        dotted = (0, (1.2, 1.4))
        ax.plot(places, untrained, color=MUTED, linestyle=dotted, linewidth=2, label="hidden units (untrained)")
    shuffled, top = [s.shuffled for s in found], [s.shuffled_high for s in found]
    grey: dict[str, Any] = {"color": "#BDBDBD", "alpha": 0.6, "linewidth": 0}
    ax.fill_between(places, shuffled, top, label="labels of other episodes (mean to max)", **grey)
    chance = [s.chance for s in found]  # not everywhere the same: at some steps a class may be missing
    if len(set(chance)) == 1:
        ax.axhline(chance[0], color=INK, linewidth=1.0)
    else:
        ax.plot(places, chance, color=INK, linewidth=1.0, drawstyle="steps-mid")
    ax.text(places[-1], chance[-1], "chance ", ha="right", va="bottom", fontsize=8.5, color=INK)
    ax.set_ylim(max(-1.0, min(0.0, *chance, *shuffled)), 1.05)
    ax.margins(x=0.02)
    legend_beside(ax)
    alarm(ax, decoding.warnings)
    return ax


def decoding_map(
    decodings: DecodingResult | Sequence[DecodingResult],
    *,
    x: MapAxis = "offset",
    y: MapAxis = "site",
    correction: Literal["holm", "fdr", "max"] = "max",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Scores as a heat map, from chance to 1; a dot marks those that survive the correction.

    Where chance is not the same for all (labels with other numbers of classes), colours are of the share of the way
    from each score's own chance to 1.

    Args:
        decodings: one result, or several of one metric (other labels, other checkpoints): corrected together by
            `marlnb.analysis.decoding.result.corrected_together`, or each by itself as they are.
        x, y: what lies along the axes: site, agent, offset, t, label or checkpoint.
    Raises:
        AnalysisError: metrics that differ, or two scores that fall in one cell.
    """
    results = [decodings] if not isinstance(decodings, Sequence) else list(decodings)
    metrics = sorted({result.metric for result in results})
    if len(metrics) != 1:
        raise AnalysisError(f"scores of different metrics share no scale: {metrics}")
    cells: dict[tuple[object, object], Score] = {}
    for result in results:
        for score in result.scores:
            place = (_along(y, result, score), _along(x, result, score))
            if place in cells:
                raise AnalysisError(f"two scores at {y}={place[0]}, {x}={place[1]}: choose other axes, or one agent")
            cells[place] = score
    rows, columns = (list(dict.fromkeys(place[axis] for place in cells)) for axis in (0, 1))
    several = len({score.chance for score in cells.values()}) > 1
    lowest = 0.0 if several else next(iter(cells.values())).chance
    coloured = {place: _share_of_the_way(score) if several else score.score for place, score in cells.items()}
    values = np.array([[coloured.get((r, c), np.nan) for c in columns] for r in rows])
    longest, many = max(len(str(row)) for row in rows), len(columns) > 12
    width = 2.6 + 0.07 * longest + (0.42 if many else 0.62) * len(columns)
    heading = title or f"{', '.join(dict.fromkeys(result.label for result in results))}: where and when it is read"
    width = max(5.2, width, width_with_title(heading, before=0.6 + 0.07 * longest))
    ax = axes(ax, width=width, height=max(3.2, 1.6 + 0.45 * len(rows)))
    image = ax.imshow(values, cmap=SEQUENTIAL, vmin=lowest, vmax=1, aspect="auto")
    for (r, c), score in cells.items():
        shade = "black" if coloured[r, c] > (1 + lowest) / 2 else "white"
        mark = ("\n●" if many else " ●") if score.survives(correction) else ""
        where = (columns.index(c), rows.index(r))
        ax.text(*where, f"{score.score:.2f}{mark}", ha="center", va="center", color=shade, fontsize=8)
    scale = "share of the way from chance to 1" if several else "from chance to 1"
    ax.figure.colorbar(image, ax=ax, pad=0.02).set_label(f"{metrics[0]}\n({scale})", fontsize=9)
    ax.set_xticks(range(len(columns)), [str(c) for c in columns])
    ax.set_yticks(range(len(rows)), [str(r) for r in rows])
    if max(len(str(c)) for c in columns) > 5:
        ax.tick_params(axis="x", rotation=30)
    unit = {"offset": "offset of the label (steps)", "t": "time (steps)", "checkpoint": "checkpoint (iteration)"}
    names = {"holm": "Holm's", "fdr": "Benjamini and Hochberg's", "max": "Westfall and Young's"}
    finish(ax, title=heading, x=unit.get(x, x), y=unit.get(y, y), grid="")
    ax.set_xlabel(f"{unit.get(x, x)}\n● survives {names[correction]} correction (p ≤ 0.05)", fontsize=9)
    alarm(ax, list(dict.fromkeys(note for result in results for note in result.warnings)))
    return ax


def _share_of_the_way(score: Score) -> float:
    """From chance, 0, to 1; 0 where chance leaves nothing to be gained."""
    return (score.score - score.chance) / (1 - score.chance) if score.chance < 1 else 0.0


def _along(axis: MapAxis, result: DecodingResult, score: Score) -> object:
    if axis in ("label", "checkpoint"):
        return getattr(result, axis)
    if axis not in ("site", "agent", "offset", "t"):
        raise AnalysisError(unknown("axis of a decoding map", axis, get_args(MapAxis)))
    return getattr(score, axis)


def _scores(
    decoding: DecodingResult, agent: str | None, site: str | None = None, offset: int | None = None
) -> tuple[str, list[Score]]:
    names = list(dict.fromkeys(score.agent for score in decoding.scores))
    if agent is None and len(names) > 1:
        raise AnalysisError(f"whose decoding? agent must be one of {names}")
    who = names[0] if agent is None else agent
    if who not in names:
        raise AnalysisError(unknown("agent in this decoding", who, names))
    sites = list(dict.fromkeys(score.site for score in decoding.scores))
    if site is not None and site not in sites:
        raise AnalysisError(unknown("site in this decoding", site, sites))
    found = [s for s in decoding.scores if s.agent == who and site in (None, s.site) and offset in (None, s.offset)]
    if not found:
        raise AnalysisError(f"no score of {who} at offset {offset}")
    return who, found
