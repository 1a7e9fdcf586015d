"""What passes between a speaker and a listener."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, OKABE_ITO, SEQUENTIAL, alarm, axes, finish


class InformationResult(Protocol):
    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def bits(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def chance(self) -> float: ...


class IntervalResult(Protocol):
    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


class CommunicationResult(Protocol):
    """code `[message, goal]` counts with names; mutual information in bits; causal influence or None."""

    @property
    def speaker(self) -> str: ...
    @property
    def listener(self) -> str: ...
    @property
    def goal(self) -> str: ...
    @property
    def signalling(self) -> InformationResult: ...
    @property
    def listening(self) -> InformationResult: ...
    @property
    def following(self) -> InformationResult: ...
    @property
    def consistency(self) -> InformationResult | None: ...
    @property
    def influence(self) -> IntervalResult | None: ...
    @property
    def code(self) -> np.ndarray: ...
    @property
    def messages(self) -> tuple[str, ...]: ...
    @property
    def goals(self) -> tuple[str, ...]: ...
    @property
    def context_independence(self) -> float: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def code_book(communication: CommunicationResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """How often each message is said, for each goal (columns add up to 1)."""
    found = communication
    share = found.code / np.maximum(found.code.sum(axis=0, keepdims=True), 1)
    n_messages, n_goals = share.shape
    ax = axes(ax, width=3.2 + 0.8 * n_goals, height=2.0 + 0.6 * n_messages)
    image = ax.imshow(share, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto")
    for i in range(n_messages):
        for j in range(n_goals):
            colour = "white" if share[i, j] < 0.55 else INK
            ax.text(j, i, f"{share[i, j]:.2f}", ha="center", va="center", fontsize=9, color=colour)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("share of the goal's moments", color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
    ax.set_xticks(range(n_goals), list(found.goals))
    ax.set_yticks(range(n_messages), list(found.messages))
    x = f"{found.goal} (context independence {found.context_independence:.2f})"
    finish(ax, title=title or f"What {found.speaker} says", x=x, y="message", grid="")
    alarm(ax, found.warnings)
    return ax


def information_bars(communication: CommunicationResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Bits between goal, message and action, each with its interval and chance, and what exchanging messages does."""
    found = communication
    told = [found.signalling, *([found.consistency] if found.consistency else []), found.listening, found.following]
    ax = axes(ax, width=2.2 + 1.35 * (len(told) + 1), height=3.8)
    names = []
    for k, one in enumerate(told):
        _bar(ax, k, one.bits, one.low, one.high, OKABE_ITO[0])
        ax.plot([k - 0.34, k + 0.34], [one.chance] * 2, color=INK, linestyle=(0, (3, 1.5)), linewidth=1.6)
        names.append(f"{one.a}\nand {one.b}".replace(f"{found.listener}'s", "listener's"))
    if found.influence is not None:
        _bar(ax, len(told), found.influence.value, found.influence.low, found.influence.high, OKABE_ITO[1])
        names.append("message exchanged,\nall else kept\n(causal influence)")
    ax.plot([], [], color=INK, linestyle=(0, (3, 1.5)), label="other episodes (chance)")
    ax.legend(frameon=False, fontsize=8.5)
    ax.set_xticks(range(len(names)), names, fontsize=8.5)
    heading = title or f"From {found.speaker} to {found.listener}"
    finish(ax, title=heading, x="", y="mutual information (bits)")
    alarm(ax, found.warnings)
    return ax


def _bar(ax: Axes, place: int, value: float, low: float, high: float, colour: str) -> None:
    ax.bar(place, value, color=colour, edgecolor=INK, linewidth=0.8, width=0.68)
    ax.errorbar(place, value, [[max(value - low, 0)], [max(high - value, 0)]], color=INK, capsize=4)
    ax.text(place, max(value, high) + 0.02, f"{value:.2f}", ha="center", va="bottom", fontsize=9, color=INK)
