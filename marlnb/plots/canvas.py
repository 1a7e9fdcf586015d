"""The axes that figures are drawn into, and the style that they share. It makes no pyplot figure: no global state."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, radians, sin, sqrt
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, MaxNLocator
from matplotlib.transforms import Bbox, ScaledTranslation

from marlnb.errors import AnalysisError, unknown

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C8C8C")
"""Distinct with any colour vision; the first ones also in greyscale (Okabe and Ito 2008, Color Universal Design)."""
DASHES: tuple[object, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, MUTED, ALARM = "#222222", "#6B6B6B", "#B00020"
MISSING = "#E8E8E8"
SEQUENTIAL = "cividis"
MAX_WARNINGS = 4
MAX_WIDTH = 12.0
"""Of columns side by side, in inches: a notebook scales wider figures down."""
MIN_COLUMN, MIN_WRITTEN_COLUMN = 0.06, 0.4
"""The narrowest column of a heat map in inches, and the narrowest one with numbers of two decimals."""
SLANT = 35
"""Of names below the axes, in degrees."""
LETTER = 0.066
"""Width of a letter of names in inches, at 8.5 points."""


class PlainFigure(Figure):
    """A white figure that shows its texts as they are: a `$` in a name of a user starts no formula.

    It and its axes are white in dark styles too: the colours of all figures are chosen for a white background.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"facecolor": "white", "layout": "constrained"} | options)
        self._reserved = {"names": 0.0, "warnings": 0.0}

    def reserve(self, height: float, content: Literal["names", "warnings"]) -> None:
        """Makes the figure higher, in inches, for texts below its axes; axes side by side share the room."""
        self.set_figheight(self.get_figheight() + max(0.0, height - self._reserved[content]))
        self._reserved[content] = max(self._reserved[content], height)
        self.get_layout_engine().set(h_pad=0.1)  # type: ignore[union-attr, call-arg]  # in inches: the padding of boxes

    def add_subplot(self, *args: Any, **options: Any) -> Axes:  # type: ignore[override]
        return super().add_subplot(*args, **{"facecolor": "white"} | options)

    def draw(self, renderer: Any) -> None:
        show_as_text(self)
        super().draw(renderer)


def show_as_text(artist: Artist) -> None:
    """Turns formulas off in all texts of a figure or an axes, but the powers of ten of a logarithmic axis."""
    for text in artist.findobj(Text):
        text.set_parse_math(False)  # type: ignore[attr-defined]
        if "$" in text.get_text():  # type: ignore[attr-defined]
            text.set_wrap(False)  # type: ignore[attr-defined]  # matplotlib would measure its lines as formulas
    for axis in artist.findobj(Axis):
        if axis.get_scale() == "log":  # type: ignore[attr-defined]
            for label in axis.get_ticklabels(which="both"):  # type: ignore[attr-defined]
                label.set_parse_math(True)


def axes(ax: Axes | None, *, width: float = 6.4, height: float = 3.8) -> Axes:
    """`ax`, or the axes of a new figure of this size in inches."""
    if ax is not None:
        return ax
    return PlainFigure(figsize=(width, height), dpi=110).add_subplot()


def panels(n: int, *, width: float = 6.4, height: float = 3.4) -> list[Axes]:
    """`n` axes side by side in a new figure, each of this size in inches."""
    figure = PlainFigure(figsize=(width * n, height), dpi=110)
    return [figure.add_subplot(1, n, k + 1) for k in range(n)]


def count_in_whole_numbers(*axis: Axis) -> None:
    """Puts ticks at whole numbers only: there is no half of an episode, of a step or of a feature."""
    for each in axis:
        each.set_major_locator(_WholeNumbers("auto", integer=True, steps=[1, 2, 5, 10]))


class _WholeNumbers(MaxNLocator):
    """Where fewer than two whole numbers fit, as for a single step, matplotlib's ticks are fractions."""

    def tick_values(self, vmin: float, vmax: float) -> np.ndarray:  # type: ignore[override]
        return np.unique(np.round(super().tick_values(vmin, vmax)))


def agent_colour(agent: str, agents: Sequence[str]) -> str:
    """The colour of an agent, by its index among all agents of the environment: the same in every figure.

    Raises:
        AnalysisError: `agents` lacks it.
    """
    if agent not in agents:
        raise AnalysisError(unknown("agent", agent, agents))
    return OKABE_ITO[list(agents).index(agent) % len(OKABE_ITO)]


def line_style(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of a figure's line, by its index among all lines."""
    return {
        "color": OKABE_ITO[index % len(OKABE_ITO)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def choose_agent(agent: str | None, agents: Sequence[str], what: str) -> str:
    """The agent that is drawn; None: the only one.

    Raises:
        AnalysisError: no such agent, or several and none chosen; `what` names the result in the message.
    """
    if agent is None and len(agents) > 1:
        raise AnalysisError(f"this {what} has several agents: give agent=, one of {list(agents)}")
    name = agents[0] if agent is None else agent
    if name not in agents:
        raise AnalysisError(unknown(f"agent in this {what}", name, agents))
    return name


def heat_map(
    ax: Axes,
    values: np.ndarray,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    text: np.ndarray | None = None,
    low: float | None = None,
    high: float | None = None,
    cmap: str = SEQUENTIAL,
    font_size: float = 8.5,
    square: bool = False,
) -> None:
    """Draws a matrix with a colour bar; cells that are NaN are grey.

    Args:
        values: `[row, column]`.
        rows: names of the rows; empty for no tick labels.
        columns: names of the columns.
        label: of the colour bar.
        text: `[row, column]`, what is written into each cell.
        low: the value of the darkest colour; None for the smallest one.
        high: the value of the brightest colour; None for the largest one.
        square: whether cells are squares.
    """
    import seaborn as sns  # takes about a second: only the figures that use it pay for it

    labels = {"xticklabels": False, "yticklabels": False, "cbar_kws": {"pad": 0.02}}
    if text is not None:
        labels |= {"annot": text, "fmt": "", "annot_kws": {"fontsize": font_size}}
    sns.heatmap(values, ax=ax, cmap=cmap, vmin=low, vmax=high, square=square, **labels)
    ax.set_facecolor(MISSING)
    mesh = ax.collections[-1]
    for number in ax.texts:  # seaborn writes white on colours as light as 0.4, where black is easier to read
        column, row = map(int, number.get_position())
        number.set_color("white" if sns.utils.relative_luminance(mesh.to_rgba(values[row, column])) < 0.22 else INK)
    ax.set_xticks(np.arange(len(columns)) + 0.5, list(columns))
    ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows), rotation=0)
    label_colour_bar(mesh.colorbar, label, fontsize=9)  # type: ignore[arg-type]


def label_colour_bar(bar: Colorbar, label: str, *, fontsize: float | None = None) -> None:
    """Labels a colour bar, in the colour of the other texts."""
    bar.set_label(label, color=INK, fontsize=fontsize, wrap=True)
    bar.outline.set_edgecolor(INK)  # type: ignore[operator]
    bar.ax.tick_params(colors=INK)
    show_as_text(bar.ax)


def finish(ax: Axes, *, title: str, x: str, y: str, grid: str = "y", warnings: Sequence[str] = ()) -> Axes:
    """Adds the title and the axis labels, opens the frame, draws a light grid behind the data and raises an `alarm`.

    A title or label that is longer than the figure is wide (or high) has several lines. Names below the axes that would
    touch are slanted.
    """
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=10, wrap=True)
    ax.set_xlabel(x, color=INK, wrap=True)
    ax.set_ylabel(y, color=INK, wrap=True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(colors=INK, labelsize=9)
    legend = ax.get_legend()
    for text in [legend.get_title(), *legend.get_texts()] if legend is not None else ():
        text.set_color(INK)
    if grid:
        ax.grid(axis=grid, color="#E3E3E3", linewidth=0.8)  # type: ignore[arg-type]
        ax.set_axisbelow(True)
    show_as_text(ax)
    _separate_names(ax)
    alarm(ax, warnings)
    show_as_text(ax)
    return ax


def _separate_names(ax: Axes) -> None:
    """Slants the names below the axes if they would touch, upright if they are many; of numbers every k-th remains.

    A PlainFigure grows by the height that the names gain.
    """
    labels, figure = ax.get_xticklabels(), ax.get_figure(root=True)
    assert figure is not None
    if not isinstance(ax.xaxis.get_major_locator(), FixedLocator) or len(labels) < 2:
        return
    if isinstance(figure, PlainFigure):  # lays out: the axes have their width
        ax.tick_params(axis="x", labelbottom=False)
        figure.draw_without_rendering()
        ax.tick_params(axis="x", labelbottom=True)
    boxes, gap = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0), 0.06 * figure.dpi
    if all(left.x1 + gap <= right.x0 for left, right in pairwise(boxes)):
        return
    names, ticks, size = [label.get_text() for label in labels], ax.get_xticks(), labels[0].get_fontsize()
    room = ax.bbox.width / abs(np.diff(ax.get_xlim())[0]) * np.diff(np.sort(ticks)).min()  # pixels a name
    if all(map(_is_number, names)):
        every = ceil((max(box.width for box in boxes) + gap) / room)
        ax.set_xticks(ticks[::every], names[::every], fontsize=size)
        return
    height = max(box.height for box in boxes)
    is_upright = room < height / sin(radians(SLANT))
    style = {"rotation": 90, "va": "center"} if is_upright else {"rotation": SLANT}
    ax.set_xticks(ticks, names, fontsize=size, ha="right", rotation_mode="anchor", **style)  # type: ignore[arg-type]
    if isinstance(figure, PlainFigure):
        new_height = max(label.get_window_extent().height for label in ax.get_xticklabels())
        figure.reserve((new_height - height) / figure.dpi, "names")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def legend_outside(ax: Axes, *, title: str | None = None, size: float | None = None, offset: float = 0.0) -> None:
    """Adds a legend to the right of the axes, where it hides no data.

    One that is longer than the figure is high has several columns, for which the figure becomes wider.

    Args:
        size: of its markers in square points; None: as they are drawn in the axes.
        offset: distance from the axes in points, for labels that are written between them and the legend.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    _, names = ax.get_legend_handles_labels()
    max_rows = max(1, int(5 * figure.get_figheight() - 3))  # that fit next to the axes
    n_columns = max(1, ceil(len(names) / max_rows))
    if isinstance(figure, PlainFigure):
        figure.set_figwidth(figure.get_figwidth() + (n_columns - 1) * _column_width(names))
    anchor = ax.transAxes + ScaledTranslation(offset / 72, 0, figure.dpi_scale_trans)
    style: dict[str, Any] = {
        "frameon": False,
        "fontsize": 8.5,
        "loc": "upper left",
        "ncols": n_columns,
        "labelcolor": INK,
    }
    legend = ax.legend(title=title, bbox_to_anchor=(1, 1), bbox_transform=anchor, **style)
    if size is not None:
        for handle in legend.legend_handles:
            if isinstance(handle, Line2D):
                handle.set_markersize(sqrt(size))
            else:
                handle.set_sizes([size])  # type: ignore[union-attr]
    show_as_text(legend)


def width_with_legend(names: Iterable[str], *, offset: float = 0.0) -> float:
    """The width of a figure, in inches, with room next to its axes for a legend of these names.

    Args:
        offset: as for `legend_outside`.
    """
    return 5.8 + _column_width(names) + offset / 72


def _column_width(names: Iterable[str]) -> float:
    return max((0.55 + LETTER * len(name) for name in names), default=0.0)


def width_of_columns(n: int, each: float, *, narrowest: float) -> float:
    """The width of `n` columns in inches: `each` wide, but together at most MAX_WIDTH as long as none is too narrow."""
    return n * max(narrowest, min(each, MAX_WIDTH / n))


def width_with_title(title: str, *, left: float) -> float:
    """The width of a figure, in inches, in which this title fits; `left`: the space left of the axes."""
    return left + 0.1 + 0.093 * len(title)


def alarm(ax: Axes, warnings: Sequence[str]) -> None:
    """Writes the warnings in red below the axes: the first ones, and how many more there are.

    A PlainFigure grows to make room for them. A user's figure without a layout engine has no room below the axes: there
    they stand inside, at the bottom.
    """
    if not warnings:
        return
    figure, subplot = ax.get_figure(root=True), ax.get_subplotspec()
    assert figure is not None
    n_columns = 1 if subplot is None else subplot.get_gridspec().ncols
    width = figure.get_size_inches()[0] / n_columns - _width_of_row_names(ax)
    n_letters = int(min(80, max(24, 9 * width)))  # that fit on a line
    lines = [textwrap.fill(warning, n_letters) for warning in warnings[:MAX_WARNINGS]]
    if len(warnings) > MAX_WARNINGS:
        lines.append(f"and {len(warnings) - MAX_WARNINGS} more: see the result's warnings")
    text = "\n".join(["NOT TO BE TRUSTED", *lines])
    has_room = figure.get_layout_engine() is not None
    if isinstance(figure, PlainFigure):
        figure.reserve(0.35 + 0.155 * (text.count("\n") + 1), "warnings")
    ax.annotate(
        text,
        xy=(0, 0),
        xycoords=("axes fraction", partial(_below, ax) if has_room else "axes fraction"),
        xytext=(4, -9 if has_room else 9),
        textcoords="offset points",
        ha="left",
        va="top" if has_room else "bottom",
        color="white",
        fontsize=9,
        fontweight="bold",
        zorder=10,
        bbox={"facecolor": ALARM, "edgecolor": "none", "alpha": 0.9, "boxstyle": "round,pad=0.5"},
    )


def _width_of_row_names(ax: Axes) -> float:
    """The width in inches of the longest name left of the axes; 0 for numbers."""
    if not isinstance(ax.yaxis.get_major_locator(), FixedLocator):
        return 0.0
    lines = [line for label in ax.get_yticklabels() for line in label.get_text().split("\n")]
    return LETTER * max(map(len, lines), default=0)


def _below(ax: Axes, renderer: RendererBase) -> Bbox:
    """The ticks and the label of the x axis, or the axes if it has none."""
    bounds: Bbox | None = ax.xaxis.get_tightbbox(renderer) if ax.axison else None
    return ax.bbox if bounds is None else bounds  # type: ignore[return-value]
