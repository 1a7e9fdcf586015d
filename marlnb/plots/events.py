"""What happens around events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    INK,
    MUTED,
    axes,
    count_in_whole_numbers,
    finish,
    legend_outside,
    line_style,
    width_with_legend,
)

if TYPE_CHECKING:
    from marlnb.analysis.representations.event_average_result import EventAverage

CONTROL = "other episodes, same times"


def event_response(
    average: EventAverage,
    *,
    channels: Sequence[str | int] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The average around the event with its 95% band; in grey the same times of other episodes.

    Args:
        channels: by name or index; None: the two that respond most.
    Raises:
        AnalysisError: there is no such channel.
    """
    chosen = list(average.order[:2]) if channels is None else [_channel(average, name) for name in channels]
    ax = axes(ax, width=width_with_legend([CONTROL, *(average.channels[channel] for channel in chosen)]))
    lags = average.lags
    for k, channel in enumerate(chosen):
        style = line_style(k) | {"marker": ""}
        low, high = average.control_low[:, channel], average.control_high[:, channel]
        label = None if k else CONTROL
        ax.fill_between(lags, low, high, color="#9A9A9A", alpha=0.35, linewidth=0, label=label)
        low, high = average.low[:, channel], average.high[:, channel]
        ax.fill_between(lags, low, high, color=style["color"], alpha=0.25, linewidth=0)
        ax.plot(lags, average.mean[:, channel], linewidth=2.2, label=average.channels[channel], **style)
        ax.plot(lags, average.control[:, channel], linewidth=1.0, **style | {"color": MUTED})
    ax.axvline(0, color=INK, linewidth=1.1)
    min_count, max_count = int(average.n_events.min()), int(average.n_events.max())
    events = f"{max_count} events" if min_count == max_count else f"{min_count} to {max_count} events a lag"
    legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    heading = title or f"{average.agent}: {average.what} around “{average.event}”"
    across = f"lag from the event ({average.lag_unit}); {events}"
    up = "mean activation" if "/" in average.what else f"mean {average.what}"
    return finish(ax, title=heading, x=across, y=up, warnings=average.warnings)


def _channel(average: EventAverage, name: str | int) -> int:
    if isinstance(name, str):
        if name not in average.channels:
            raise AnalysisError(unknown("channel", name, average.channels))
        return average.channels.index(name)
    if not 0 <= name < len(average.channels):
        raise AnalysisError(f"no channel {name}; valid: 0 to {len(average.channels) - 1}")
    return int(name)
