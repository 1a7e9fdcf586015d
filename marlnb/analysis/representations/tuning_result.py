"""The result of a tuning analysis: each unit's curve, the variance that the label explains, and chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result
from marlnb.display.array_summary import FieldsSummary
from marlnb.display.formatting import count
from marlnb.models.hooks.directions import Direction


@dataclass(frozen=True, repr=False)
class UntrainedTuning(FieldsSummary):
    """The same label and time steps in the network with random weights whose best unit is tuned most.

    Attributes:
        n_networks: networks of the same architecture with random weights, of which this is one.
        strength: `[unit]`, eta squared.
        n_tuned: its units that are tuned beyond chance.
        gain: eta squared of the trained network's most strongly tuned unit minus that of this network's.
        low: lower end of the gain's 95% bootstrap interval over episodes.
        high: upper end of that interval.
    """

    n_networks: int
    strength: np.ndarray
    n_tuned: int
    gain: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Tuning(Result):
    """Mean activations of one agent's units in the bins of a label.

    Attributes:
        site: the units' site.
        agent: the agent's name.
        agents: all agents of the environment.
        label: the label's name.
        is_class: whether the label has classes and is no quantity.
        bins: names of the classes, or the intervals of a quantity.
        centres: `[bin]`, the bins' positions in a plot.
        curve: `[bin, unit]`, mean activation; NaN in an empty bin.
        low: `[bin, unit]`, lower end of its 95% bootstrap interval over episodes.
        high: `[bin, unit]`, upper end of that interval.
        strength: `[unit]`, eta squared: the share of a unit's variance that lies between the bins.
        shuffled: `[unit]`, its mean when each episode is given the labels of another.
        p_value: `[unit]`, of eta squared of the ranks, corrected for the number of units.
        count: `[bin]`, rows.
        episodes: `[bin]`, episodes with such rows.
        mean: `[unit]`, of all rows.
        scale: `[unit]`, standard deviation of all rows.
        n_shuffles: permutations behind each p-value.
        n_episodes: episodes with rows.
        untrained: the same in untrained networks; None if there is none, for which `notes` has the reason.
        warnings: reasons not to trust the result.
        notes: facts that are no reason for distrust, such as rows without a label.
        given: names of what was taken as known and removed from the units; empty: nothing.
        rows: the condition that chose the rows; empty: none.
        checkpoint: iteration whose rows were read.
    """

    MAX_HTML_ROWS: ClassVar[int | None] = 12

    site: str
    agent: str
    agents: tuple[str, ...]
    label: str
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
    n_episodes: int
    untrained: UntrainedTuning | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    given: str = ""
    rows: str = ""
    checkpoint: int | None = None

    @property
    def n_units(self) -> int:
        return len(self.strength)

    @property
    def order(self) -> np.ndarray:
        """Units, the most strongly tuned first."""
        return np.argsort(-self.strength, kind="stable")

    @property
    def tuned(self) -> np.ndarray:
        """Units that are tuned beyond chance (corrected p below 0.05), the most strongly tuned first."""
        return self.order[self.p_value[self.order] < ALPHA]

    @property
    def preferred(self) -> np.ndarray:
        """`[unit]`, the bin in which a unit is most active."""
        return np.asarray(np.argmax(np.where(np.isnan(self.curve), -np.inf, self.curve), axis=0))

    def directions(self) -> tuple[Direction, ...]:
        """Each tuned unit as a direction to steer along or to erase, the most strongly tuned first."""
        axes = np.eye(self.n_units)
        return tuple(
            Direction(self.site, self.agent, tuple(axes[u]), float(self.mean[u]), float(self.scale[u]), self.label)
            for u in self.tuned
        )

    def table(self) -> pd.DataFrame:
        """One row for each unit, the most strongly tuned first."""
        columns = {"strength": self.strength, "shuffled": self.shuffled, "p_value": self.p_value}
        preferred = [self.bins[k] for k in self.preferred]
        frame = pd.DataFrame({"unit": np.arange(self.n_units), **columns, "preferred": preferred})
        return frame.loc[self.order].reset_index(drop=True)

    @property
    def verdict(self) -> str:
        """How many units are tuned beyond chance, and whether that goes beyond untrained networks."""
        n_tuned = len(self.tuned)
        best = self.tuned[0] if n_tuned else self.order[0]
        strongest = (
            f"unit {best}, η² {self.strength[best]:.2f} where labels of other episodes give {self.shuffled[best]:.2f}, "
            f"corrected p = {self.p_value[best]:.2g}"
        )
        where, n = f"{self.agent} at {self.site}", f"n = {self.n_episodes} episodes"
        where += f", given {self.given}," * bool(self.given)
        if not n_tuned:
            return (
                f"No unit of {where} is tuned to {self.label} beyond chance, each by itself ({n}; the strongest is "
                f"{strongest}); mnb.decode tests several units together."
            )
        units = f"{n_tuned} of {self.n_units} units of {where} {_are(n_tuned)} tuned to {self.label} beyond chance"
        return f"{units} ({n}; the strongest is {strongest}); {self._against_untrained()}."

    def _against_untrained(self) -> str:
        control = self.untrained
        if control is None:
            return "whether this was learned is not known, since no untrained network was compared"
        gain = f"η² {control.gain:+.2f} [{control.low:.2f}, {control.high:.2f}]"
        if control.low > 0:
            n = f"{count(control.n_tuned, 'unit')} of the nearest of these {_are(control.n_tuned)} tuned"
            return f"the strongest is tuned more than any unit of {control.n_networks} untrained networks ({gain}; {n})"
        return (
            f"this is not shown to be learned: in one of {control.n_networks} untrained networks the strongest unit "
            f"has about as large an η² or a larger one (trained minus untrained: {gain}; "
            f"{count(control.n_tuned, 'unit')} {_are(control.n_tuned)} tuned beyond chance there)"
        )

    def _repr_table(self) -> pd.DataFrame:
        return self.table()


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
