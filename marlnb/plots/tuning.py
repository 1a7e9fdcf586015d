"""What single units respond to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError
from marlnb.plots.canvas import DASHES, INK, MARKERS, OKABE_ITO, SEQUENTIAL, alarm, axes, finish, legend_beside


class TuningResult(Protocol):
    """curve, low, high `[bin, unit]` over bins with names and centres; strength, shuffled and p_value `[unit]`."""

    @property
    def site(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def by(self) -> str: ...
    @property
    def is_class(self) -> bool: ...
    @property
    def bins(self) -> tuple[str, ...]: ...
    @property
    def centres(self) -> np.ndarray: ...
    @property
    def curve(self) -> np.ndarray: ...
    @property
    def low(self) -> np.ndarray: ...
    @property
    def high(self) -> np.ndarray: ...
    @property
    def strength(self) -> np.ndarray: ...
    @property
    def shuffled(self) -> np.ndarray: ...
    @property
    def p_value(self) -> np.ndarray: ...
    @property
    def order(self) -> np.ndarray: ...
    @property
    def tuned(self) -> np.ndarray: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def tuning_curves(
    tuning: TuningResult, *, units: Sequence[int] | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Mean activations with their 95% bands.

    Args:
        units: which ones; None: the four most strongly tuned.
    Raises:
        AnalysisError: a unit that is not there.
    """
    shown = list(tuning.order[:4]) if units is None else list(units)
    wrong = [unit for unit in shown if not 0 <= unit < tuning.curve.shape[1]]
    if wrong:
        raise AnalysisError(f"no unit {wrong[0]}; {tuning.site} has {tuning.curve.shape[1]}")
    ax = axes(ax, width=8.6)
    for k, unit in enumerate(shown):
        colour = OKABE_ITO[k % len(OKABE_ITO)]
        name = f"unit {unit}: η² {tuning.strength[unit]:.2f} (chance {tuning.shuffled[unit]:.2f})"
        if tuning.p_value[unit] >= 0.05:
            name += ", not beyond chance"
        style = "" if tuning.is_class else DASHES[k % len(DASHES)]
        shift = (k - (len(shown) - 1) / 2) * 0.12 if tuning.is_class else 0.0
        x, y = tuning.centres + shift, tuning.curve[:, unit]
        if tuning.is_class:
            bars = [y - tuning.low[:, unit], tuning.high[:, unit] - y]
            ax.errorbar(x, y, bars, color=colour, fmt=MARKERS[k % len(MARKERS)], capsize=3, label=name)
        else:
            ax.fill_between(x, tuning.low[:, unit], tuning.high[:, unit], color=colour, alpha=0.2, linewidth=0)
            ax.plot(x, y, color=colour, linestyle=style, marker=MARKERS[k % len(MARKERS)], markersize=4.5, label=name)  # type: ignore[arg-type]
    if tuning.is_class:
        ax.set_xticks(tuning.centres, list(tuning.bins))
    legend_beside(ax)
    finish(ax, title=title or f"{tuning.agent}: units tuned to {tuning.by}", x=tuning.by, y="mean activation")
    alarm(ax, tuning.warnings)
    return ax


def tuning_map(tuning: TuningResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Every unit beyond chance, a line each, its curve standardised; units that prefer the same lie together.

    All units are drawn, under a warning, where none is beyond chance.
    """
    units = tuning.tuned if len(tuning.tuned) else tuning.order
    curve = tuning.curve[:, units]
    spread = np.nanstd(curve, axis=0)
    shown = (curve - np.nanmean(curve, axis=0)) / np.where(spread > 0, spread, 1)
    preferred = np.argmax(np.nan_to_num(shown, nan=-np.inf), axis=0)
    shown = shown[:, np.lexsort((-tuning.strength[units], preferred))]
    ax = axes(ax, height=4.4)
    bound = float(np.nanmax(np.abs(shown)))
    image = ax.imshow(shown.T, aspect="auto", cmap=SEQUENTIAL, vmin=-bound, vmax=bound, interpolation="nearest")
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("mean activation\n(standard deviations of the unit's curve)", color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
    wide = any(len(name) > 8 for name in tuning.bins)
    ax.set_xticks(
        range(len(tuning.bins)), list(tuning.bins), rotation=40 if wide else 0, ha="right" if wide else "center"
    )
    ax.set_yticks([])
    heading = title or f"{tuning.agent}: {len(tuning.tuned)} of {tuning.curve.shape[1]} units tuned to {tuning.by}"
    finish(ax, title=heading, x=tuning.by, y=f"{shown.shape[1]} units, by what they prefer", grid="")
    alarm(ax, [*tuning.warnings, *(["no unit is tuned beyond chance"] if not len(tuning.tuned) else [])])
    return ax
