"""An attribution's values over all rows: means, deviations and shares of each feature."""

from __future__ import annotations

import numpy as np
import pandas as pd

BLOCK_ROWS = 65536
N_NAMED = 3


def summarised(values: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, standard deviation, mean absolute value and its share, each `[agent, feature]`.

    NaN for an agent that never acted. Values on disk are read block by block.

    Args:
        values: `[row, agent, feature]`; rows with a value that is not finite are left out.
    """
    n_agents, n_features = values.shape[1:]
    count, sums = np.zeros((n_agents, 1)), np.zeros((3, n_agents, n_features))
    for start in range(0, len(values), BLOCK_ROWS):
        block = np.asarray(values[start : start + BLOCK_ROWS], np.float64)
        finite = np.isfinite(block).all(-1, keepdims=True)
        block = np.where(finite, block, 0)
        count += finite.sum(0)
        sums += [block.sum(0), np.abs(block).sum(0), np.square(block).sum(0)]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, size, square = sums / count
        share = size / size.sum(-1, keepdims=True)
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return {"mean": mean, "std": deviation, "mean_abs": size, "share": share}


def largest_shares(summary: pd.DataFrame) -> str:
    """The features with the largest mean absolute values and their shares, in words; empty where no agent acted."""
    known = summary.dropna()
    if known.empty:
        return ""
    by_feature = known.groupby("feature", sort=False)["mean_abs"].mean().sort_values(ascending=False)
    total = by_feature.sum()
    return ", ".join(f"{name} {value / total if total else 0:.0%}" for name, value in by_feature.head(N_NAMED).items())
