"""How many bits each unit carries about a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.views import View
from marlnb.analysis.representations.bins import binned
from marlnb.analysis.results import ALPHA, Result, few_episodes_warning
from marlnb.analysis.stats.corrections import max_statistic
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.mutual_information import counts, mutual_information_bits
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording


@dataclass(frozen=True, eq=False, repr=False)
class UnitInformation(Result):
    """Mutual information between each unit of a site and a label.

    Attributes:
        site: the units' site.
        agent: the agent's name.
        label: the label's name.
        bits: `[unit]`, plug-in estimate.
        chance: `[unit]`, its mean when each episode gets the labels of another.
        p_value: `[unit]`, corrected for the number of units.
        warnings: reasons not to trust the result.
    """

    site: str
    agent: str
    label: str
    bits: np.ndarray
    chance: np.ndarray
    p_value: np.ndarray
    warnings: tuple[str, ...] = ()  # type: ignore[assignment]

    @property
    def informative(self) -> np.ndarray:
        """Units with more information than chance explains."""
        return np.flatnonzero(self.p_value < ALPHA)

    def table(self) -> pd.DataFrame:
        """One row per unit."""
        return pd.DataFrame({"bits": self.bits, "chance": self.chance, "p_value": self.p_value})

    @property
    def verdict(self) -> str:
        """How many units are informative beyond chance; whether that was learned, an untrained network would show."""
        best = int(np.argmax(self.bits))
        return (
            f"{len(self.informative)} of {len(self.bits)} units of {self.agent} at {self.site} are informative about "
            f"{self.label} beyond chance; unit {best} has {self.bits[best]:.2f} bits, labels of other episodes give "
            f"{self.chance[best]:.2f} (corrected p = {self.p_value[best]:.2g})."
        )


def unit_information(
    recording: Recording,
    *,
    site: str,
    label: Label,
    agent: str | None = None,
    n_bins: int = 8,
    n_shuffles: int = 100,
    seed: int = 0,
) -> UnitInformation:
    """Bits that each unit carries about a label: I(unit; label) = H(unit) + H(label) - H(unit, label).

    Activations `[row, unit]`, and labels that are quantities, are put into `n_bins` bins with equally many rows. Chance
    gives each episode the labels of another episode. p-values compare with the largest unit of each shuffle (Westfall
    and Young 1993).

    Raises:
        AnalysisError: the label never varies.
    """
    units = View(recording, site, agent).open()
    values = row_values(units, label)
    rows = np.flatnonzero(values.known)
    known = RowValues(values.values[rows], values.known[rows], values.name, values.names)
    if not len(rows) or np.ptp(known.values) == 0:
        raise AnalysisError(
            f"{values.name!r} never varies over {units.agent}'s {len(rows)} rows: no unit can inform on it"
        )
    label_bins = binned(known, n_bins)
    index, n_values = label_bins.index, len(label_bins)
    ranks = rankdata(units.all()[rows], axis=0)
    bins = np.minimum((n_bins * (ranks - 0.5) / len(rows)).astype(int), n_bins - 1)
    episode = units.episode[rows]
    shuffle = EpisodeShuffle(episode, units.t[rows], index)
    rng = np.random.default_rng(seed)

    def information(label_index: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        tables = np.stack([counts(unit_bins, label_index, n_bins, n_values, weight) for unit_bins in bins.T])
        return np.asarray(mutual_information_bits(tables))

    permuted = [shuffle.permute(index, rng) for _ in range(n_shuffles)]
    null = np.stack([information(each, shuffle.weight) for each in permuted], axis=1)
    return UnitInformation(
        site=site,
        agent=units.agent,
        label=values.name,
        bits=information(index),
        chance=null.mean(axis=1),
        p_value=max_statistic(information(index, shuffle.weight), null),
        warnings=(
            *few_episodes_warning(len(np.unique(episode))),
            *shuffle.warnings(values.name, index, label_bins.names),
        ),
    )
