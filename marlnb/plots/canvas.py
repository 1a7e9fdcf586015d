"""Where figures are drawn, and the look that they share. No pyplot: nothing here touches global state."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C8C8C")
"""Told apart with any colour vision, the first ones also in greyscale (Okabe and Ito 2008, Color Universal Design)."""
DASHES: tuple[object, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, MUTED, ALARM = "#222222", "#6B6B6B", "#B00020"
SEQUENTIAL = "cividis"
MOST_TOLD = 4


def axes(ax: Axes | None, *, width: float = 6.4, height: float = 3.8) -> Axes:
    """`ax`, or the axes of a new figure of its own, sizes in inches."""
    if ax is not None:
        return ax
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    return figure.add_subplot()


def panels(n: int, *, width: float = 6.4, height: float = 3.4) -> list[Axes]:
    """`n` axes beside one another in a new figure, each of that size in inches."""
    figure = Figure(figsize=(width * n, height), dpi=110, layout="constrained")
    return [figure.add_subplot(1, n, k + 1) for k in range(n)]


def agent_colour(agent: str, agents: Sequence[str]) -> str:
    """The colour of an agent: its place among all of the environment's, so the same in every figure."""
    return OKABE_ITO[list(agents).index(agent) % len(OKABE_ITO)]


def finish(ax: Axes, *, title: str, x: str, y: str, grid: str = "y") -> Axes:
    """Title and axis labels, open frame, a quiet grid behind the data."""
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=10)
    ax.set_xlabel(x, color=INK)
    ax.set_ylabel(y, color=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(colors=INK, labelsize=9)
    if grid:
        ax.grid(axis=grid, color="#E3E3E3", linewidth=0.8)  # type: ignore[arg-type]
        ax.set_axisbelow(True)
    return ax


def legend_beside(ax: Axes, *, title: str | None = None, size: float | None = None, beyond: float = 0.0) -> None:
    """A legend to the right of the axes, where it hides no data.

    size: of the markers in it, in square points, whatever they have in the plot; None: as they are drawn.
    beyond: how far to the right, in points: what else stands beside the axes.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    place = ax.transAxes + ScaledTranslation(beyond / 72, 0, figure.dpi_scale_trans)
    legend = ax.legend(
        frameon=False, fontsize=8.5, title=title, loc="upper left", bbox_to_anchor=(1, 1), bbox_transform=place
    )
    for handle in legend.legend_handles if size is not None else ():
        handle.set_sizes([size])  # type: ignore[union-attr]


def width_with_names(names: Iterable[str], *, beyond: float = 0.0) -> float:
    """The width of a figure, in inches, whose axes leave room for a legend of these names beside them; `beyond` as
    above."""
    return 5.8 + max((0.55 + 0.066 * len(name) for name in names), default=0.0) + beyond / 72


def width_with_title(title: str, *, before: float) -> float:
    """The width of a figure, in inches, that holds this title; `before`: left of the axes, where it begins."""
    return before + 0.1 + 0.093 * len(title)


def literal(text: str) -> str:
    """A user's own text as it is: a `$` in it begins no formula."""
    return text.replace("$", r"\$")


def alarm(ax: Axes, warnings: Sequence[str]) -> None:
    """Says across the figure, in red, why it must not be trusted: of many reasons the first, and how many more."""
    if not warnings:
        return
    told = [textwrap.fill(note, _letters(ax)) for note in warnings[:MOST_TOLD]]
    if len(warnings) > MOST_TOLD:
        told.append(f"and {len(warnings) - MOST_TOLD} more: see the result's warnings")
    text = "\n".join(["NOT TO BE TRUSTED", *told])
    ax.set_zorder(10)  # before a colour bar beside it
    ax.text(
        0.5,
        0.5,
        text,
        transform=ax.transAxes,
        ha="center",
        va="center",
        color="white",
        fontsize=10,
        fontweight="bold",
        zorder=10,
        bbox={"facecolor": ALARM, "edgecolor": "none", "alpha": 0.88, "boxstyle": "round,pad=0.6"},
    )


def _letters(ax: Axes) -> int:
    """Of an alarm's line, that its part of the figure has room for."""
    figure, place = ax.get_figure(root=True), ax.get_subplotspec()
    assert figure is not None
    columns = 1 if place is None else place.get_gridspec().ncols
    return int(min(60, max(24, 8.5 * figure.get_size_inches()[0] / columns)))
