"""What single units respond to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError
from marlnb.plots.canvas import axes, finish, heat_map, legend_outside, line_style
from marlnb.plots.marks import draw_band

if TYPE_CHECKING:
    from marlnb.analysis.representations.tuning_result import Tuning


def tuning_curves(
    tuning: Tuning, *, units: Sequence[int] | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Mean activations of units with their 95% bands.

    Args:
        units: which ones; None: the four most strongly tuned.
    Raises:
        AnalysisError: the site has no such unit.
    """
    chosen = list(tuning.order[:4]) if units is None else list(units)
    n_units = tuning.curve.shape[1]
    invalid = [unit for unit in chosen if not 0 <= unit < n_units]
    if invalid:
        raise AnalysisError(f"no unit {invalid[0]}; {tuning.site} has units 0 to {n_units - 1}")
    ax = axes(ax, width=8.6)
    step = min(0.12, 0.8 / max(len(chosen), 1))  # between units, so that all of them stay at their class
    for k, unit in enumerate(chosen):
        style = line_style(k)
        name = f"unit {unit}: η² {tuning.strength[unit]:.2f} (chance {tuning.shuffled[unit]:.2f})"
        if tuning.p_value[unit] >= 0.05:
            name += ", not beyond chance"
        y, low, high = tuning.curve[:, unit], tuning.low[:, unit], tuning.high[:, unit]
        if tuning.is_class:
            x = tuning.centres + (k - (len(chosen) - 1) / 2) * step
            ax.errorbar(x, y, np.maximum([y - low, high - y], 0), capsize=3, label=name, **style | {"linestyle": ""})
        else:
            draw_band(ax, tuning.centres, low, high, colour=style["color"])
            ax.plot(tuning.centres, y, markersize=4.5, label=name, **style)
    if tuning.is_class:
        ax.set_xticks(tuning.centres, list(tuning.bins))
    legend_outside(ax)
    heading = title or f"{tuning.agent}: units tuned to {tuning.label}"
    return finish(ax, title=heading, x=tuning.label, y="mean activation", warnings=tuning.warnings)


def tuning_map(tuning: Tuning, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The standardised curve of every unit that is tuned beyond chance, sorted by the bin that it prefers.

    If no unit is tuned beyond chance, the map shows all units with a warning.
    """
    units = tuning.tuned if len(tuning.tuned) else tuning.order
    curve = tuning.curve[:, units]
    spread = np.nanstd(curve, axis=0)
    standardised = (curve - np.nanmean(curve, axis=0)) / np.where(spread > 0, spread, 1)
    preferred = np.argmax(np.nan_to_num(standardised, nan=-np.inf), axis=0)
    standardised = standardised[:, np.lexsort((-tuning.strength[units], preferred))]
    bound = float(np.nanmax(np.abs(standardised)))
    label = "mean activation\n(standard deviations of the unit's curve)"
    ax = axes(ax, height=4.4)
    heat_map(ax, standardised.T, rows=(), columns=tuning.bins, label=label, low=-bound, high=bound)
    heading = title or f"{tuning.agent}: {len(tuning.tuned)} of {tuning.curve.shape[1]} units tuned to {tuning.label}"
    warnings = [*tuning.warnings, *(["no unit is tuned beyond chance"] if not len(tuning.tuned) else [])]
    up = f"{len(units)} units, sorted by preferred bin"
    return finish(ax, title=heading, x=tuning.label, y=up, grid="", warnings=warnings)
