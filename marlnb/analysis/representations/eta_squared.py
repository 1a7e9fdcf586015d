"""eta squared: the share of a unit's variance that lies between the bins of a label, also of shuffles and samples."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.stats import rankdata

from marlnb.analysis.stats.bootstrap import episode_sums
from marlnb.analysis.stats.corrections import max_statistic
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle


def eta_squared(x: np.ndarray, bin_index: np.ndarray, n_bins: int) -> np.ndarray:
    """`sum_k n_k (mean_k - mean)² / sum_i (x_i - mean)²`, the share of variance between bins.

    Args:
        x: `[row, unit]`.
        bin_index: `[row]` in `[0, n_bins)`.
    Returns:
        `[unit]`; 0 for a unit that never varies.
    Source: Pearson 1905, On the General Theory of Skew Correlation (the squared correlation ratio).
    """
    return eta_squared_of_each(x, [bin_index], n_bins)[0]


def eta_squared_of_each(
    x: np.ndarray, bin_indices: Iterable[np.ndarray], n_bins: int, weight: np.ndarray | None = None
) -> np.ndarray:
    """`eta_squared` of several labels, such as shuffles, `[label, unit]`; the units are centred once.

    Args:
        weight: `[row]`, with a mean of 1; None: all rows count alike.
    """
    weight = np.ones(len(x)) if weight is None else weight
    centred = x - weight @ x / len(x)
    weighted = weight[:, None] * centred
    total = (weighted * centred).sum(axis=0)
    varies = total > 1e-12 * len(x)
    bins = np.arange(n_bins)[:, None]
    shares = []
    for bin_index in bin_indices:
        count = np.bincount(bin_index, weight, minlength=n_bins)
        sums = (bins == bin_index).astype(float) @ weighted
        between = (sums**2 / np.where(count > 0, count, 1)[:, None]).sum(axis=0)
        shares.append(np.where(varies, between / np.where(varies, total, 1), 0.0))
    return np.stack(shares)


def resampled_eta_squared(
    x: np.ndarray, bin_index: np.ndarray, n_bins: int, episode: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """eta² `[sample, unit]` in bootstrap samples of episodes, from sums over the rows of each episode and bin."""
    n_episodes = weights.shape[1]
    cell = episode * n_bins + bin_index
    moments = np.column_stack([np.ones(len(x)), x, x**2])
    sums = episode_sums(moments, cell, n_episodes * n_bins).reshape(n_episodes, -1)
    drawn = (weights @ sums).reshape(len(weights), n_bins, -1)
    count, total, squares = drawn[..., :1], *np.split(drawn[..., 1:], 2, axis=2)
    n, mean = count.sum(axis=1), total.sum(axis=1) / count.sum(axis=1)
    between = (total**2 / np.maximum(count, 1)).sum(axis=1) - n * mean**2
    variance = squares.sum(axis=1) - n * mean**2
    return np.asarray(np.where(variance > 1e-12 * n, between / np.where(variance > 0, variance, 1), 0.0))


def tuned_beyond_chance(
    x: np.ndarray,
    bin_index: np.ndarray,
    n_bins: int,
    episode: np.ndarray,
    t: np.ndarray,
    *,
    n_shuffles: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """p-values `[unit]` of eta² of the ranks of `[row, unit]`, against the best unit of each shuffle of episodes."""
    ranks = rankdata(x, axis=0)
    shuffle = EpisodeShuffle(episode, t, bin_index)
    permuted = (shuffle.permute(bin_index, rng) for _ in range(n_shuffles))
    strength, *null = eta_squared_of_each(ranks, [bin_index, *permuted], n_bins, shuffle.weight)
    return max_statistic(strength, np.stack(null, axis=1))
