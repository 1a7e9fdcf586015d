"""Transplant: what changed when a network got units of another one."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd

from marlnb.analysis.results import Result, few_episodes_warning
from marlnb.analysis.stats.paired_test import PairedDifference
from marlnb.display.formatting import format_interval

INHERITED = 0.5  # share of what scrambled units change that is kept
MIN_CHANGE = 0.01  # of actions by the control, below which nothing depends on the units


@dataclass(frozen=True, eq=False, repr=False)
class Transplant(Result):
    """A network with units of another one, computed from the same observations.

    Attributes:
        donor: whose units were taken.
        recipient: in whose network they were put.
        site: the layer.
        units: which ones.
        kept: 1: actions stay as they were; 0: they change as much as with the control, the donor's units in another
            order.
        low: lower end of its 95% bootstrap interval over episodes.
        high: upper end.
        change: distance of actions on the same states, with the donor's units.
        control_change: the same with the control.
        return_before: mean return of the group's agents without a transplant.
        return_change: by the donor's units, paired over episodes.
        control_return_change: by the control.
        zero_sum: whether the group's agents play against each other, so that their mean return is always 0.
        n_episodes: that were played.
    """

    donor: str
    recipient: str
    site: str
    units: tuple[int, ...]
    kept: float
    low: float
    high: float
    change: float
    control_change: float
    return_before: float
    return_change: PairedDifference
    control_return_change: PairedDifference
    zero_sum: bool
    n_episodes: int

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(few_episodes_warning(self.n_episodes))

    @property
    def inherited(self) -> bool | None:
        """Whether the recipient uses these units as the donor does; None: it is not shown either way."""
        if self.control_change < MIN_CHANGE or self.low <= INHERITED <= self.high:
            return None
        return self.low > INHERITED

    @property
    def verdict(self) -> str:
        n = len(self.units)
        what = f"{n} {'unit' if n == 1 else 'units'} of {self.donor} in {self.recipient} at {self.site}"
        if self.control_change < MIN_CHANGE:
            return f"{what}: even in another order they hardly change the actions, so nothing can be concluded."
        conclusion = {
            True: "it uses them as the donor does, so this code was inherited",
            False: "it does not use them as the donor does, so it was changed or learned again",
            None: "whether it uses them as the donor does is not shown",
        }[self.inherited]
        change, control = self.return_change, self.control_return_change
        returns = (
            "The agents play against each other, so their mean return stays 0"
            if self.zero_sum
            else f"The return changes by {format_interval(change.mean, change.low, change.high, signed=True)}, in "
            f"another order by {format_interval(control.mean, control.low, control.high, signed=True)}"
        )
        return (
            f"{what}: {conclusion}: kept {self.kept:.2f} [{self.low:.2f}, {self.high:.2f}] (1: the same actions, 0: as "
            f"with the units in another order). {returns} (n = {self.n_episodes} episodes)."
        )

    def table(self) -> pd.DataFrame:
        """One row for the donor's units, and one for the control."""
        rows = {
            "donor's units": (self.change, self.return_change),
            "another order": (self.control_change, self.control_return_change),
        }
        return pd.DataFrame(
            [
                {
                    "units": name,
                    "action_change": change,
                    **{f"return_{key}": value for key, value in asdict(test).items()},
                }
                for name, (change, test) in rows.items()
            ]
        )
