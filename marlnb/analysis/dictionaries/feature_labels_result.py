"""The result of matching a dictionary's features with a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result


@dataclass(frozen=True, eq=False, repr=False)
class FeatureLabels(Result):
    """How much of each feature goes with a label, beyond what is given.

    Attributes:
        site: the dictionary's site.
        agent: the agent's name.
        label: the label's name.
        given: what is taken as known already, in words; empty if nothing is.
        bins: names of the classes, or the intervals of a quantity.
        share: `[feature]`, share of a feature's variance that the label explains beyond what is given.
        low: `[feature]`, lower end of its 95% bootstrap interval over episodes.
        high: `[feature]`, upper end of that interval.
        shuffled: `[feature]`, its mean when each episode is given the labels of another.
        p_value: `[feature]`, corrected for the number of features.
        share_alone: `[feature]`, share that the label explains with nothing given.
        p_alone: `[feature]`, corrected p-value of that.
        preferred: `[feature]`, the bin in which a feature is most active.
        n_episodes: episodes with rows.
        n_rows: time steps.
        n_shuffles: permutations behind each p-value.
        warnings: reasons not to trust the result.
        notes: facts that are no reason for distrust, such as rows without a label.
    """

    MAX_HTML_ROWS: ClassVar[int | None] = 12

    site: str
    agent: str
    label: str
    given: str
    bins: tuple[str, ...]
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shuffled: np.ndarray
    p_value: np.ndarray
    share_alone: np.ndarray
    p_alone: np.ndarray
    preferred: np.ndarray
    n_episodes: int
    n_rows: int
    n_shuffles: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> np.ndarray:
        """Features, the one that the label explains most first."""
        return np.argsort(-self.share, kind="stable")

    @property
    def matched(self) -> np.ndarray:
        """Features that go with the label beyond chance (corrected p below 0.05), the strongest first."""
        return self.order[self.p_value[self.order] < ALPHA]

    @property
    def verdict(self) -> str:
        """How many features go with the label beyond chance and beyond what is given."""
        best = int(self.order[0])
        beyond = f" beyond {self.given}" if self.given else ""
        strongest = (
            f"feature {best}, {self.share[best]:.0%} [{self.low[best]:.0%}, {self.high[best]:.0%}] of its variance "
            f"where labels of other episodes give {self.shuffled[best]:.0%}, corrected p = {self.p_value[best]:.2g}"
        )
        where = f"{self.site} of {self.agent}"
        n, total = f"n = {self.n_episodes} episodes", len(self.share)
        if len(self.matched):
            preferred = self.bins[self.preferred[self.matched[0]]]
            return (
                f"{len(self.matched)} of {total} features of {where} go with {self.label}{beyond} ({n}; most "
                f"{strongest}; most active at {preferred}); this is a correlation: ablating the feature tests its use."
            )
        n_alone = int((self.p_alone < ALPHA).sum())
        if self.given and n_alone:
            alone = int(self.share_alone.argmax())
            return (
                f"{self.label} is not separable from {self.given} in the features of {where}: alone it goes with "
                f"{n_alone} of {total} (most feature {alone}, {self.share_alone[alone]:.0%} of its variance), beyond "
                f"{self.given} with none ({n}; most {strongest})."
            )
        return (
            f"No feature of {where} goes with {self.label}{beyond} beyond chance, each by itself ({n}; most "
            f"{strongest}); several features together were not tested."
        )

    def table(self) -> pd.DataFrame:
        """One row for each feature, the one that the label explains most first."""
        columns = {"share": self.share, "low": self.low, "high": self.high, "shuffled": self.shuffled}
        columns |= {"p_value": self.p_value, "share_alone": self.share_alone}
        preferred = [self.bins[k] for k in self.preferred]
        frame = pd.DataFrame({"feature": np.arange(len(self.share)), **columns, "preferred": preferred})
        return frame.loc[self.order].reset_index(drop=True)

    def _repr_table(self) -> pd.DataFrame:
        return self.table()[["feature", "share", "shuffled", "p_value", "share_alone", "preferred"]]
