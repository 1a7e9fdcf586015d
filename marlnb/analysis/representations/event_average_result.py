"""What units or fields do around events, beside what they do around moments that are none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.data.missing_labels import told_of
from marlnb.analysis.results import doubts, shown_as_html


@dataclass(frozen=True)
class EventAverage:
    """Averages at each lag from an event, over the events whose episode goes so far.

    Attributes:
        lags: `[lag]` in `lag_unit`, steps or turns of the agent, 0 at the event.
        mean, low, high: `[lag, channel]`, with 95% intervals (episodes drawn anew); NaN where no event has that lag.
        control, control_low, control_high: the same around other episodes' event times, shuffled: the middle 95%.
        n_events: `[lag]`, how many events are averaged there; overlapping: how many have another within the window.
        channels: names of the units or features.
        warnings: why this must not be trusted; notes: what else must be known, as rows that had no label.
    """

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
        """`[channel]`: the largest distance from the control's mean, in the control's half widths (1: its edge)."""
        half = np.maximum((self.control_high - self.control_low) / 2, 1e-12)
        return np.asarray(np.nanmax(np.abs(self.mean - self.control) / half, axis=0))

    @property
    def order(self) -> np.ndarray:
        """Channels, the strongest response first."""
        return np.argsort(-self.response, kind="stable")

    def table(self) -> pd.DataFrame:
        """One line a lag and channel."""
        n_lags, n_channels = self.mean.shape
        return pd.DataFrame(
            {
                "lag": np.repeat(self.lags, n_channels),
                "channel": np.tile(np.array(self.channels), n_lags),
                "mean": self.mean.ravel(),
                "low": self.low.ravel(),
                "high": self.high.ravel(),
                "control": self.control.ravel(),
                "control_low": self.control_low.ravel(),
                "control_high": self.control_high.ravel(),
                "n_events": np.repeat(self.n_events, n_channels),
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def __repr__(self) -> str:
        flag = told_of(self.notes) + doubts(self.warnings)
        at = int(self.n_events[self.lags == 0][0])
        return (
            f"EventAverage({self.agent} {self.what} around {self.event}: {at} events of {self.n_episodes} episodes, "
            f"{self.overlapping} with another in the window{flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table(), rows=12)
