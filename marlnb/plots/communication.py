"""What a speaker's messages carry, and what a listener does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import OKABE_ITO, axes, finish, heat_map
from marlnb.plots.marks import bar_with_interval, write_number

if TYPE_CHECKING:
    from marlnb.analysis.communication.communication_result import Communication


def code_book(communication: Communication, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """How often each message is sent, for each goal. Columns add up to 1."""
    share = communication.code / np.maximum(communication.code.sum(axis=0, keepdims=True), 1)
    n_messages, n_goals = share.shape
    text = np.vectorize("{:.2f}".format)(share)
    ax = axes(ax, width=3.2 + 0.8 * n_goals, height=2.0 + 0.6 * n_messages)
    heat_map(ax, share, rows=communication.messages, columns=communication.goals, low=0, high=1, text=text,
             label="share of the goal's time steps")  # fmt: skip
    x = f"{communication.goal} (context independence {communication.context_independence:.2f})"
    heading = title or f"What {communication.speaker} says"
    return finish(ax, title=heading, x=x, y="message", grid="", warnings=communication.warnings)


def information_bars(communication: Communication, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Mutual information between goal, message and action in bits, without its bias, with 95% intervals.

    An asterisk marks p ≤ 0.05 against pairings with other episodes. The last bar is the causal influence of the
    message: what changes when messages are exchanged between episodes.
    """
    measures = (communication.signalling, communication.consistency, communication.listening, communication.following)
    pairs = [measure for measure in measures if measure is not None]
    ax = axes(ax, width=2.2 + 1.35 * (len(pairs) + 1), height=3.8)
    names = []
    for x, pair in enumerate(pairs):
        _bar(ax, x, pair.corrected, pair.low, pair.high, OKABE_ITO[0], mark="*" if pair.p_value <= 0.05 else "")
        names.append(f"{pair.a}\nand {pair.b}".replace(f"{communication.listener}'s", "listener's"))
    if communication.influence is not None:
        influence = communication.influence
        _bar(ax, len(pairs), influence.value, influence.low, influence.high, OKABE_ITO[1])
        names.append("message exchanged,\nall else unchanged\n(causal influence)")
    ax.margins(y=0.12)
    ax.set_xticks(range(len(names)), names, fontsize=8.5)
    heading = title or f"From {communication.speaker} to {communication.listener}"
    return finish(
        ax,
        title=heading,
        x="* p ≤ 0.05 against other episodes",
        y="mutual information (bits)",
        warnings=communication.warnings,
    )


def _bar(ax: Axes, x: int, value: float, low: float, high: float, colour: str, mark: str = "") -> None:
    bar_with_interval(ax, x, value, low, high, colour, width=0.68)
    write_number(ax, x, max(value, high), f"{value:.2f}{mark}")
