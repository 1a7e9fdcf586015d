"""What can be read from hidden units, always beside the controls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import INK, MUTED, OKABE_ITO, agent_colour, alarm, axes, finish
from marlnb.plots.results import DecodingResult, Score


def decoding_bars(
    decoding: DecodingResult,
    *,
    agent: str | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The score over all time steps beside its controls, with chance as a line.

    Args:
        agents: all agents of the environment, for this one's colour.
    """
    who, found = _scores(decoding, agent)
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
    heading = title or f"{decoding.label} read from {decoding.site}"
    finish(ax, title=heading, x="", y=decoding.metric)
    ax.set_xlabel(f"{who}; {score.n_rows:,} steps of {score.n_episodes} episodes, split by episode", fontsize=9)
    alarm(ax, decoding.warnings)
    return ax


def decoding_over_time(
    decoding: DecodingResult,
    *,
    agent: str | None = None,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What is known when: the score at each time step with its 95% interval, beside its controls and chance."""
    who, found = _scores(decoding, agent)
    if any(score.t is None for score in found):
        raise AnalysisError("this decoding is of all time steps together; decode(..., at='each') has one for each")
    ax = axes(ax)
    t = np.array([score.t for score in found])
    colour = agent_colour(who, agents) if who in agents else OKABE_ITO[0]
    ax.fill_between(t, [s.low for s in found], [s.high for s in found], color=colour, alpha=0.22, linewidth=0)
    ax.plot(
        t,
        [s.score for s in found],
        color=colour,
        linewidth=3.6,
        marker="o",
        markersize=6,
        label="hidden units (trained)",
    )
    ax.plot(
        t, [s.observation for s in found], color=INK, linestyle=(0, (5, 2)), linewidth=1.5, label="observation alone"
    )
    untrained = [s.untrained for s in found if s.untrained is not None]
    if len(untrained) == len(found):
        ax.plot(t, untrained, color=MUTED, linestyle=(0, (1.2, 1.4)), linewidth=2, label="hidden units (untrained)")
    shuffled, top = [s.shuffled for s in found], [s.shuffled_high for s in found]
    ax.fill_between(
        t, shuffled, top, color="#BDBDBD", alpha=0.6, linewidth=0, label="labels of other episodes (mean to max)"
    )
    chance = found[0].chance
    ax.axhline(chance, color=INK, linewidth=1.0)
    ax.text(t[-1], chance, "chance ", ha="right", va="bottom", fontsize=8.5, color=INK)
    ax.set_ylim(min(0.0, chance, *shuffled), 1.05)
    ax.margins(x=0.02)
    ax.legend(frameon=False, fontsize=8.5, loc="best")
    heading = title or f"When is {decoding.label} known? ({who}, {decoding.site})"
    finish(ax, title=heading, x="time (steps)", y=decoding.metric)
    alarm(ax, decoding.warnings)
    return ax


def _scores(decoding: DecodingResult, agent: str | None) -> tuple[str, list[Score]]:
    names = list(dict.fromkeys(score.agent for score in decoding.scores))
    if agent is None and len(names) > 1:
        raise AnalysisError(f"whose decoding? agent must be one of {names}")
    who = names[0] if agent is None else agent
    if who not in names:
        raise AnalysisError(unknown("agent in this decoding", who, names))
    return who, [score for score in decoding.scores if score.agent == who]
