"""A still picture of one moment, for pages on which widgets do not run."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from marlnb.plots.canvas import DASHES, INK, MUTED, SEQUENTIAL, agent_colour, literal
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.unit_orders import unit_orders

MOST_AGENTS = 8


def still(
    views: Sequence[EpisodeView],
    titles: Sequence[str],
    place: int,
    layer: str,
    order: str,
    agents: Sequence[str],
    images: Sequence[bytes | None],
) -> Figure:
    """Each side's picture, its agents' units over time and its rewards, with a line at the step at `place`."""
    n_agents = max(len(_shown(view, layer, agents)) for view in views)
    figure = Figure(figsize=(6.4 * len(views), 3.4 + 1.15 * n_agents), dpi=90, layout="constrained")
    for view, title, image, part in zip(views, titles, images, figure.subfigures(1, len(views), squeeze=False)[0]):
        here = min(place, len(view.t) - 1)
        part.suptitle(literal(f"{title}, step {view.t[here]}"), fontsize=11, fontweight="bold", color=INK)
        shown = _shown(view, layer, agents)
        grid = part.add_gridspec(1 + len(shown), 2, height_ratios=[2.6, *[1.0] * len(shown)])
        _picture(part.add_subplot(grid[0, 0]), image)
        _rewards(part.add_subplot(grid[0, 1]), view, here)
        for row, agent in enumerate(shown, 1):
            _units(part.add_subplot(grid[row, :]), view, agent, layer, order, here)
    return figure


def _shown(view: EpisodeView, layer: str, agents: Sequence[str]) -> list[str]:
    chosen = [agent for agent in view.agents if not agents or agent in agents]
    return [agent for agent in chosen if view.site_of(agent, layer)][:MOST_AGENTS]


def _picture(ax: Axes, image: bytes | None) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_color("#B0B0B0")
    if not image:
        ax.text(0.5, 0.5, "no picture", ha="center", va="center", color=MUTED)
        return
    ax.imshow(np.asarray(Image.open(io.BytesIO(image)).convert("RGB")))


def _rewards(ax: Axes, view: EpisodeView, here: int) -> None:
    agents = list(view.recording.spec.agents)
    for group in view.groups:
        for k, agent in enumerate(group.agents):
            colour, dash = agent_colour(agent, agents), DASHES[agents.index(agent) % len(DASHES)]
            ax.plot(view.t, group.reward[:, k], color=colour, linestyle=dash, label=literal(agent))
            if group.value is not None:
                ax.plot(view.t, group.value[:, k], color=colour, linestyle=dash, linewidth=0.8, alpha=0.8)
    ax.axvline(view.t[here], color=MUTED)
    ax.set_title("reward (thick), value (thin)", fontsize=9, loc="left", color=INK)
    ax.set_xlabel("time (steps)", color=INK)
    ax.legend(fontsize=8, frameon=False)


def _units(ax: Axes, view: EpisodeView, agent: str, layer: str, order: str, here: int) -> None:
    site = view.site_of(agent, layer)
    assert site is not None
    x = view.units_of(agent, site)
    shown = x[:, unit_orders(x)[order]]
    edges = (view.t[0] - 0.5, view.t[-1] + 0.5, x.shape[1] - 0.5, -0.5)
    ax.imshow(shown.T, aspect="auto", cmap=SEQUENTIAL, interpolation="nearest", extent=edges)
    ax.axvline(view.t[here], color="#FF2D2D")
    ax.set_yticks([])
    told = literal(f"{agent}: {layer}, {x.shape[1]} units by step, {_range(x)}")
    ax.set_title(told, fontsize=9, loc="left", color=INK)


def _range(x: np.ndarray) -> str:
    """What the colours of units `[time, unit]` mean."""
    known = x[np.isfinite(x)]
    return f"{known.min():.2g} (dark) to {known.max():.2g} (bright)" if known.size else "none known"
