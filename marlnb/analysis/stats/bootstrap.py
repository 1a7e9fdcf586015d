"""Intervals over episodes. Steps of one episode resemble each other, so whole episodes are resampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.results import CONFIDENCE
from marlnb.values import checked_number

MIN_RESAMPLES = 20
"""Of shuffles, so that a p-value of 0.05 is possible, and of bootstrap samples."""


@dataclass(frozen=True)
class Interval:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float


def checked_resampling(
    n_shuffles: int, n_bootstrap: int, seed: int, *, min_shuffles: int = MIN_RESAMPLES
) -> tuple[int, int, int]:
    """Numbers of shuffles and of bootstrap samples, and the seed of both, as Python's own.

    Raises:
        ConfigError: one of them is out of range, or no whole number.
    """
    return (
        checked_number(n_shuffles, int, "n_shuffles", ge=min_shuffles),
        checked_number(n_bootstrap, int, "n_bootstrap", ge=MIN_RESAMPLES),
        checked_number(seed, int, "seed", ge=0),
    )


def episode_index(episode: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct episode numbers `[episode]`, and the index of each row's episode among them, `[row]`."""
    numbers, index = np.unique(episode, return_inverse=True)
    return numbers, index.reshape(-1)


def episode_sums(values: np.ndarray, index: np.ndarray, n_episodes: int) -> np.ndarray:
    """Sums over each episode's rows, `[episode, ...]` float64, of values `[row, ...]`; index: as `episode_index`."""
    sums = np.zeros((n_episodes, *values.shape[1:]))
    np.add.at(sums, index, values)
    return sums


def bootstrap_weights(n_episodes: int, n_bootstrap: int, rng: np.random.Generator) -> np.ndarray:
    """How often each episode is drawn in each bootstrap sample, `[sample, episode]`.

    As many episodes as there are, with replacement. A statistic of sums over episodes is then one product,
    `weights @ sums`.

    Source: Efron 1979, Bootstrap Methods: Another Look at the Jackknife; whole clusters as in Davison and Hinkley 1997,
        section 3.8.
    """
    return rng.multinomial(n_episodes, np.full(n_episodes, 1 / n_episodes), size=n_bootstrap).astype(np.float64)


def bootstrap_means(x: np.ndarray, index: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over rows `[unit]`, and the low and high end of its interval over episodes.

    Args:
        x: `[row, unit]`.
        index: `[row]`, each row's episode.
        weights: `[sample, episode]`, as `bootstrap_weights` gives them.
    """
    n_episodes = weights.shape[1]
    sums, counts = episode_sums(x, index, n_episodes), np.bincount(index, minlength=n_episodes).astype(float)
    n_drawn = weights @ counts
    low, high = percentile_interval((weights @ sums) / np.where(n_drawn > 0, n_drawn, np.nan)[:, None])
    return sums.sum(axis=0) / max(counts.sum(), 1), low, high


def half_samples(n_blocks: int, n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Random halves of the blocks, `[sample, block]` of 0 and 1, drawn without replacement.

    For statistics that a row counted twice would distort, such as a correlation fitted in many dimensions.
    """
    order = np.argsort(rng.random((n_samples, n_blocks)), axis=1)
    return (order < n_blocks // 2).astype(np.float64)


def percentile_interval(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high `[...]` of bootstrap samples `[sample, ...]`; NaN samples are left out."""
    tail = 100 * (1 - CONFIDENCE) / 2
    known = np.isfinite(samples).any(axis=0)
    low, high = (np.full(samples.shape[1:], np.nan) for _ in range(2))
    if known.any():
        low[known], high[known] = np.nanpercentile(samples[:, known], [tail, 100 - tail], axis=0)
    return low, high


def half_sample_interval(value: float, samples: np.ndarray, n_blocks: int) -> tuple[float, float]:
    """Low and high of a statistic, from its values `[sample]` on halves of the blocks.

    The deviations of the half-sample values from their mean stand for those of the statistic itself: the delete-d
    jackknife has the variance (n - d) / d mean((value_s - mean)^2), and with d = n/2 the factor is 1.

    Source: Shao and Wu 1989, A General Theory for Jackknife Variance Estimation, section 3.
    """
    n_kept = n_blocks // 2
    stretch = np.sqrt(n_kept / max(n_blocks - n_kept, 1))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile((samples - samples.mean()) * stretch, [tail, 100 - tail])
    return float(value + low), float(value + high)


def p_value_above(value: float, null: np.ndarray) -> float:
    """One-sided Monte Carlo p-value of a statistic: p = (1 + #{null >= value}) / (1 + #null), up to rounding.

    Source: Phipson and Smyth 2010, Permutation P-values Should Never Be Zero.
    """
    return float((1 + np.sum(null >= value - 1e-12)) / (1 + len(null)))
