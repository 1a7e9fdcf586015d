"""What units are tuned to: a curve for each unit, the share of its variance that it accounts for, and chance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.data.missing_labels import told_of
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.models.hooks.directions import Direction

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Tuning:
    """Mean activations of one agent's units in the bins of a label.

    Attributes:
        bins: names of the classes, or the intervals of a quantity; centres: `[bin]`, where they are drawn.
        curve, low, high: `[bin, unit]`, mean and 95% interval (episodes drawn anew); NaN in an empty bin.
        strength: `[unit]`, eta squared: the share of a unit's variance between the bins.
        shuffled: `[unit]`, its mean when each episode is given another one's labels.
        p_value: `[unit]`, of the same share of ranks, corrected for the number of units.
        count: `[bin]` rows; episodes: `[bin]`, in how many they lie.
        mean, scale: `[unit]`, of all rows, mean and standard deviation.
        warnings: why this must not be trusted; notes: what else must be known, as rows that had no label.
    """

    site: str
    agent: str
    agents: tuple[str, ...]
    by: str
    is_class: bool
    bins: tuple[str, ...]
    centres: np.ndarray
    curve: np.ndarray
    low: np.ndarray
    high: np.ndarray
    strength: np.ndarray
    shuffled: np.ndarray
    p_value: np.ndarray
    count: np.ndarray
    episodes: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    n_shuffles: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def n_units(self) -> int:
        return len(self.strength)

    @property
    def order(self) -> np.ndarray:
        """Units, the most strongly tuned first."""
        return np.argsort(-self.strength, kind="stable")

    @property
    def tuned(self) -> np.ndarray:
        """Units whose strength is beyond chance (corrected p below 0.05), the strongest first."""
        return self.order[self.p_value[self.order] < SIGNIFICANT]

    @property
    def preferred(self) -> np.ndarray:
        """`[unit]`: the bin in which a unit is most active."""
        return np.asarray(np.argmax(np.where(np.isnan(self.curve), -np.inf, self.curve), axis=0))

    def directions(self) -> tuple[Direction, ...]:
        """The tuned units, the strongest first, each a direction to be steered along or erased; empty where none is."""
        every = np.eye(self.n_units)
        return tuple(
            Direction(self.site, self.agent, tuple(every[u]), float(self.mean[u]), float(self.scale[u]), self.by)
            for u in self.tuned
        )

    def table(self) -> pd.DataFrame:
        """One line a unit, the most strongly tuned first."""
        return pd.DataFrame(
            {
                "unit": self.order,
                "strength": self.strength[self.order],
                "shuffled": self.shuffled[self.order],
                "p_value": self.p_value[self.order],
                "preferred": [self.bins[k] for k in self.preferred[self.order]],
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def __repr__(self) -> str:
        best = self.order[0]
        flag = told_of(self.notes) + doubts(self.warnings)
        return (
            f"Tuning({self.agent} {self.site} by {self.by}: {len(self.tuned)} of {self.n_units} units tuned, "
            f"most of all unit {best} (eta² {self.strength[best]:.2f}, shuffled {self.shuffled[best]:.2f}){flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table(), rows=12)
