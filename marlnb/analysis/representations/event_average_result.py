"""The result of an event average: units or fields around events, next to times that are no events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, grid_table


@dataclass(frozen=True, eq=False)
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
    n_events: np.ndarray
    n_episodes: int
    overlapping: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lag_unit: str = "steps"

    @property
    def response(self) -> np.ndarray:
        """`[channel]`, `max over lags of |mean - control| / half width of the control`: 1 is the control's edge."""
        half_width = np.maximum((self.control_high - self.control_low) / 2, 1e-12)
        return np.asarray(np.nanmax(np.abs(self.mean - self.control) / half_width, axis=0))

    @property
    def order(self) -> np.ndarray:
        """Channels, the strongest response first."""
        return np.argsort(-self.response, kind="stable")

    def table(self) -> pd.DataFrame:
        """One row for each lag and channel."""
        names = ("mean", "low", "high", "control", "control_low", "control_high")
        values = {name: getattr(self, name) for name in names}
        values["n_events"] = np.repeat(self.n_events[:, None], len(self.channels), axis=1)
        return grid_table({"lag": self.lags}, {"channel": self.channels}, values)

    def __repr__(self) -> str:
        n_events = int(self.n_events[self.lags == 0][0])
        return (
            f"EventAverage({self.agent} {self.what} around {self.event}: {n_events} events of {self.n_episodes} "
            f"episodes, {self.overlapping} with another in the window{self.remarks})"
        )
