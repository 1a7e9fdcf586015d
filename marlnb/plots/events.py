"""What happens around events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import DASHES, INK, MUTED, OKABE_ITO, alarm, axes, finish


class EventAverageResult(Protocol):
    """mean, low, high and the control's `[lag, channel]`; n_events `[lag]`."""

    @property
    def what(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def lags(self) -> np.ndarray: ...
    @property
    def lag_unit(self) -> str: ...
    @property
    def channels(self) -> tuple[str, ...]: ...
    @property
    def mean(self) -> np.ndarray: ...
    @property
    def low(self) -> np.ndarray: ...
    @property
    def high(self) -> np.ndarray: ...
    @property
    def control(self) -> np.ndarray: ...
    @property
    def control_low(self) -> np.ndarray: ...
    @property
    def control_high(self) -> np.ndarray: ...
    @property
    def n_events(self) -> np.ndarray: ...
    @property
    def order(self) -> np.ndarray: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def event_response(
    average: EventAverageResult,
    *,
    channels: Sequence[str | int] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The average around the event with its 95% band; in grey what the same times of other episodes give.

    Args:
        channels: by name or index; None: the two that respond most.
    """
    shown = list(average.order[:2]) if channels is None else [_channel(average, name) for name in channels]
    ax = axes(ax)
    for k, channel in enumerate(shown):
        colour, dash = OKABE_ITO[k % len(OKABE_ITO)], DASHES[k % len(DASHES)]
        ax.fill_between(
            average.lags,
            average.control_low[:, channel],
            average.control_high[:, channel],
            color="#9A9A9A",
            alpha=0.35,
            linewidth=0,
            label="other episodes, same times" if k == 0 else None,
        )
        ax.fill_between(
            average.lags, average.low[:, channel], average.high[:, channel], color=colour, alpha=0.25, linewidth=0
        )
        name = average.channels[channel]
        ax.plot(average.lags, average.mean[:, channel], color=colour, linestyle=dash, linewidth=2.2, label=name)  # type: ignore[arg-type]
        ax.plot(average.lags, average.control[:, channel], color=MUTED, linestyle=dash, linewidth=1.0)  # type: ignore[arg-type]
    ax.axvline(0, color=INK, linewidth=1.1)
    low, high = int(average.n_events.min()), int(average.n_events.max())
    counted = f"{high} events" if low == high else f"{low} to {high} events a lag"
    ax.legend(frameon=False, fontsize=8.5)
    finish(
        ax,
        title=title or f"{average.agent}: {average.what} around “{average.event}”",
        x=f"lag from the event ({average.lag_unit}); {counted}",
        y="mean activation" if "/" in average.what else f"mean {average.what}",
    )
    alarm(ax, average.warnings)
    return ax


def _channel(average: EventAverageResult, name: str | int) -> int:
    if isinstance(name, str):
        if name not in average.channels:
            raise AnalysisError(unknown("channel", name, average.channels))
        return average.channels.index(name)
    if not 0 <= name < len(average.channels):
        raise AnalysisError(f"no channel {name}; there are {len(average.channels)}")
    return int(name)
