"""The microscope on pages without widgets: a still figure of the step that is shown, kept below the widget."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ipywidgets as w
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import SubplotSpec
from PIL import Image

from marlnb.plots.canvas import DASHES, INK, MUTED, SEQUENTIAL, PlainFigure, agent_colour, legend_outside
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.snapshot import Snapshot, with_snapshot
from marlnb.widgets.core.ui_lock import UI_LOCK
from marlnb.widgets.microscope.background import Side
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.frames import recorded_frames, replayed_frames
from marlnb.widgets.microscope.payload import unit_orders
from marlnb.widgets.microscope.scope import Scope

RENEW_AFTER_S = 1.5  # without a change, after which the snapshot is drawn again
MAX_AGENTS = 8
MAX_REPLAYED_STEPS = 60  # for the image of a single step


class Display:
    """The microscope as a notebook displays it.

    The snapshot follows what is shown: after the cell that changed it, or soon after the last click.

    Args:
        widget: the microscope's widget.
        sides: returns what is shown.
        text: returns it as text.
    """

    def __init__(
        self, widget: w.Box, scope: Scope, sides: Callable[[], Sequence[Side]], text: Callable[[], str]
    ) -> None:
        self._widget, self._scope, self._sides, self._text = widget, scope, sides, text
        self._snapshot = Snapshot(widget, text, self.figure)
        self._renewing = LatestOnly(wait_s=RENEW_AFTER_S)
        scope.observe(lambda _: self._changed(), ["t", "layer", "order", "agents", "films"])

    def show(self) -> None:
        self._snapshot.display()

    def bundle(self) -> dict[str, Any]:
        """The widget and the figure, by mime type."""
        return with_snapshot(self._widget, self._text(), self.figure)

    def figure(self) -> Figure:
        """What is shown now."""
        with UI_LOCK:  # only to read a consistent state: drawing takes long
            sides, scope = list(self._sides()), self._scope
            t, layer, order, agents = scope.t, scope.layer, scope.order, list(scope.agents)
            sent = [scope.images(number) for number in range(len(sides))]
        images = [image_at(side, t, of_side) for side, of_side in zip(sides, sent)]
        return still_figure(sides, t, layer, order, agents, images)

    def _changed(self) -> None:
        self._snapshot.outdate()
        self._renewing.request(lambda: None, lambda _: self._snapshot.renew_soon(now=True), lambda _: None)


def image_at(side: Side, index: int, images: Mapping[int, bytes]) -> bytes | None:
    """The image of a step, or of the last step before it that has one.

    Args:
        images: that were sent already; if there are none, the image is read or drawn now.
    """
    images = images or {frame.index: frame.image for frame in recorded_frames(side.view)} or _replayed(side, index)
    before = [k for k in images if k <= index]
    return images[max(before)] if before else None


def _replayed(side: Side, index: int) -> dict[int, bytes]:
    if side.source is not None and index <= MAX_REPLAYED_STEPS:
        with suppress(Exception):  # an environment may raise anything when it is drawn; the scope's note shows it
            frames = replayed_frames(side.view, side.source, side.env)
            return {index: next(frame.image for frame in frames if frame.index == index)}
    return {}


def still_figure(
    sides: Sequence[Side], index: int, layer: str, order: str, agents: Sequence[str], images: Sequence[bytes | None]
) -> Figure:
    """For each side its image, its rewards, and the units of its agents over time, with a line at the step `index`."""
    n_rows = max(min(len(_chosen_agents(side.view, layer, agents)), MAX_AGENTS) for side in sides)
    figure = PlainFigure(figsize=(6.4 * len(sides), 3.4 + 1.15 * n_rows), dpi=90)
    for side, image, part in zip(sides, images, figure.subfigures(1, len(sides), squeeze=False)[0]):
        view = side.view
        k = min(index, len(view.t) - 1)
        chosen = _chosen_agents(view, layer, agents)
        shown = chosen[:MAX_AGENTS]
        others = "" if shown == chosen else f"\n{len(shown)} of {len(chosen)} agents; show_agents([...]) shows others"
        part.suptitle(f"{side.title}, step {view.t[k]}{others}", fontsize=11, fontweight="bold", color=INK)
        grid = part.add_gridspec(1 + len(shown), 1, height_ratios=[2.6, *[1.0] * len(shown)])
        top = grid[0].subgridspec(1, 2)
        _draw_image(_axes(part, top[0]), image)
        others_too = [*shown, *(agent for agent in view.agents if agent not in shown)]  # their rewards are drawn too
        _draw_rewards(_axes(part, top[1]), view, k, others_too[:MAX_AGENTS])
        for row, agent in enumerate(shown, 1):
            _draw_units(_axes(part, grid[row]), view, agent, layer, order, k)
    return figure


def _chosen_agents(view: EpisodeView, layer: str, agents: Sequence[str]) -> list[str]:
    chosen = [agent for agent in view.agents if not agents or agent in agents]
    return [agent for agent in chosen if view.site_of(agent, layer)]


def _axes(part: SubFigure, cell: SubplotSpec) -> Axes:
    """White in dark styles too, as the figure is."""
    ax = part.add_subplot(cell, facecolor="white")
    ax.tick_params(colors=INK)
    ax.spines[:].set_color(INK)
    return ax


def _draw_image(ax: Axes, image: bytes | None) -> None:
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_color("#B0B0B0")
    if not image:
        ax.text(0.5, 0.5, "no picture", ha="center", va="center", color=MUTED)
        return
    ax.imshow(np.asarray(Image.open(io.BytesIO(image)).convert("RGB")))


def _draw_rewards(ax: Axes, view: EpisodeView, index: int, named: Sequence[str]) -> None:
    """Draws all agents' rewards and values, and a legend of the agents in `named`."""
    agents = list(view.recording.spec.agents)
    for group in view.groups:
        for k, agent in enumerate(group.agents):
            colour, dash = agent_colour(agent, agents), DASHES[agents.index(agent) % len(DASHES)]
            ax.plot(view.t, group.reward[:, k], color=colour, linestyle=dash, label=agent if agent in named else "")
            if group.value is not None:
                ax.plot(view.t, group.value[:, k], color=colour, linestyle=dash, linewidth=0.8, alpha=0.8)
    ax.axvline(view.t[index], color=MUTED)
    ax.set_title("reward (thick), value (thin)", fontsize=9, loc="left", color=INK)
    ax.set_xlabel("time (steps)", color=INK)
    legend_outside(ax)


def _draw_units(ax: Axes, view: EpisodeView, agent: str, layer: str, order: str, index: int) -> None:
    site = view.site_of(agent, layer)
    assert site is not None
    x = view.units_of(agent, site)
    ordered = x[:, unit_orders(x)[order]]
    edges = (view.t[0] - 0.5, view.t[-1] + 0.5, x.shape[1] - 0.5, -0.5)
    ax.imshow(ordered.T, aspect="auto", cmap=SEQUENTIAL, interpolation="nearest", extent=edges)
    ax.axvline(view.t[index], color="#FF2D2D")
    ax.set_yticks([])
    known = x[np.isfinite(x)]
    colours = f"{known.min():.2g} (dark) to {known.max():.2g} (bright)" if known.size else "no finite values"
    title = f"{agent}: {layer}, {x.shape[1]} units by step, {colours}"
    ax.set_title(title, fontsize=9, loc="left", color=INK)
