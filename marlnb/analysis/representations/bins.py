"""Bins of a label: its classes, or ranges of a quantity that hold equally many rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from marlnb.analysis.data.row_values import RowValues
from marlnb.errors import AnalysisError

MAX_CLASSES = 32


@dataclass(frozen=True)
class Bins:
    """Which bin each row is in.

    Attributes:
        index: `[row]` in `[0, len(bins))`.
        names: `[bin]`.
        centres: `[bin]`, positions in a plot.
    """

    index: np.ndarray
    names: tuple[str, ...]
    centres: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    @property
    def indicators(self) -> np.ndarray:
        """`[row, bin]`, 1 where the row is in the bin, else 0."""
        return (self.index[:, None] == np.arange(len(self))).astype(np.float64)


def binned(values: RowValues, bins: int) -> Bins:
    """Classes as they are; a quantity in bins of about equally many rows, where equal values share a bin.

    A quantity with at most `bins` values gets one bin for each; one with many ties gets fewer bins than requested.
    """
    if values.is_class:
        present, index = np.unique(values.values, return_inverse=True)
        if len(present) > MAX_CLASSES:
            raise AnalysisError(
                f"{values.name!r} has {len(present)} whole values, more than {MAX_CLASSES}: pass it as floats to bin it"
            )
        return Bins(index.reshape(-1), tuple(map(values.class_name, present)), np.arange(len(present), dtype=float))
    x = values.values.astype(np.float64)
    present = np.unique(x)
    mid_rank = (rankdata(x) - 0.5) / len(x)
    bin_of_row = np.searchsorted(present, x) if len(present) <= bins else np.floor(bins * mid_rank)
    _, index = np.unique(bin_of_row, return_inverse=True)
    bin_values = [np.unique(x[index == k]) for k in range(index.max() + 1)]
    ends = [*(float(v[0]) for v in bin_values[1:]), float(bin_values[-1][-1])]
    names = tuple(f"{v[0]:.3g}" if len(v) == 1 else f"{v[0]:.3g} to {end:.3g}" for v, end in zip(bin_values, ends))
    return Bins(index, names, np.array([x[index == k].mean() for k in range(len(bin_values))]))
