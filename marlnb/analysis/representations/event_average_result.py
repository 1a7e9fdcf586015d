"""The result of an event average: units or fields around events, next to times that are no events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result, grid_table

MIN_EVENTS_AT_LAG = 5


def distance_from_control(
    mean: np.ndarray, control: np.ndarray, low: np.ndarray, high: np.ndarray, n_events: np.ndarray
) -> np.ndarray:
    """`|mean - control| / half width of the control`, `[..., lag, channel]`: 1 is the control's edge.

    Args:
        mean: `[..., lag, channel]`.
        control: `[lag, channel]`, at the event times of other episodes.
        low: `[lag, channel]`, lower end of the control's interval.
        high: `[lag, channel]`, its upper end.
        n_events: `[lag]`.
    Returns:
        0 where the mean or the control is unknown; NaN at lags that do not count, since they have fewer than
        MIN_EVENTS_AT_LAG events while others have more: neither mean nor control is an average there.
    """
    half_width = np.maximum((high - low) / 2, 1e-12)
    counts = n_events >= min(MIN_EVENTS_AT_LAG, n_events.max())
    return np.where(counts[:, None], np.nan_to_num(np.abs(mean - control) / half_width), np.nan)


@dataclass(frozen=True, eq=False, repr=False)
class EventAverage(Result):
    """Averages at each lag from an event, over the events whose episode includes that lag.

    Attributes:
        what: the site or field that is averaged.
        agent: the agent's name.
        agents: all agents of the environment.
        event: the event, in words.
        lags: `[lag]`, in `lag_unit`; 0 at the event.
        channels: `[channel]`, names of the units or features.
        mean: `[lag, channel]`; NaN where no event has that lag.
        low: `[lag, channel]`, lower end of its 95% bootstrap interval over episodes.
        high: `[lag, channel]`, upper end of that interval.
        control: `[lag, channel]`, mean around the event times of other episodes.
        control_low: `[lag, channel]`, 2.5% quantile of these means over shuffles.
        control_high: `[lag, channel]`, 97.5% quantile.
        p_value: `[channel]`, of the mean's largest distance from chance against those of the shuffles, corrected for
            lags and channels.
        n_events: `[lag]`, averaged events.
        n_episodes: episodes with an event.
        overlapping: events with another one within their window.
        warnings: reasons not to trust the result.
        notes: facts that are no reason for distrust, such as rows without a label.
        lag_unit: steps, or turns of the agent.
    """

    MAX_HTML_ROWS: ClassVar[int | None] = 12

    what: str
    agent: str
    agents: tuple[str, ...]
    event: str
    lags: np.ndarray
    channels: tuple[str, ...]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    control: np.ndarray
    control_low: np.ndarray
    control_high: np.ndarray
    p_value: np.ndarray
    n_events: np.ndarray
    n_episodes: int
    overlapping: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lag_unit: str = "steps"

    @property
    def response(self) -> np.ndarray:
        """`[channel]`, `max over lags of |mean - control| / half width of the control`: 1 is the control's edge.

        Lags with fewer than 5 events do not count, if others have more.
        """
        return np.asarray(np.nanmax(self._distance, axis=0))

    @property
    def _distance(self) -> np.ndarray:
        return distance_from_control(self.mean, self.control, self.control_low, self.control_high, self.n_events)

    @property
    def order(self) -> np.ndarray:
        """Channels: those that respond beyond chance, then the others; the strongest response first in each."""
        return np.lexsort((-self.response, self.p_value >= ALPHA))

    def table(self) -> pd.DataFrame:
        """One row for each lag and channel."""
        names = ("mean", "low", "high", "control", "control_low", "control_high")
        values = {name: getattr(self, name) for name in names}
        values["n_events"] = np.repeat(self.n_events[:, None], len(self.channels), axis=1)
        return grid_table({"lag": self.lags}, {"channel": self.channels}, values)

    @property
    def verdict(self) -> str:
        """Whether anything responds beyond the event times of other episodes, and what responds most."""
        channel = int(self.order[0])
        lag = int(np.nanargmax(self._distance[:, channel]))
        n_above = int((self.p_value < ALPHA).sum())
        n_channels = len(self.channels)
        if n_above:
            respond = "responds" if n_above == 1 else "respond"
            heading = f"{n_above} of {n_channels} channels of {self.what} of {self.agent} {respond} to {self.event}"
        else:
            heading = f"{self.what} of {self.agent} does not respond to {self.event} beyond chance"
        mean, low, high, control = (x[lag, channel] for x in (self.mean, self.low, self.high, self.control))
        n = f"n = {int(self.n_events[self.lags == 0][0])} events of {self.n_episodes} episodes"
        where = f"{self.channels[channel]} at lag {self.lags[lag]:+d} {self.lag_unit}"
        values = f"{mean:.3g} [{low:.3g}, {high:.3g}], at the event times of other episodes {control:.3g}"
        return (
            f"{heading}; the largest response is that of {where} ({values}, corrected p = {self.p_value[channel]:.2g}; "
            f"{n}, {self.overlapping} with another in their window)."
        )

    def _repr_table(self) -> pd.DataFrame:
        lag = np.nanargmax(self._distance, axis=0)
        columns = {name: getattr(self, name)[lag, np.arange(len(lag))] for name in ("mean", "low", "high", "control")}
        frame = pd.DataFrame({"channel": self.channels, "lag": self.lags[lag], **columns})
        return frame.loc[self.order].reset_index(drop=True)
