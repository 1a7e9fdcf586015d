"""Intervals over episodes: steps of one episode resemble each other, so what is drawn anew are whole episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float


def episode_places(episode: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The episodes' numbers `[episode]`, and for each row `[row]` the place of its own among them."""
    numbers, places = np.unique(episode, return_inverse=True)
    return numbers, places.reshape(-1)


def episode_sums(values: np.ndarray, places: np.ndarray, n_episodes: int) -> np.ndarray:
    """Sums over each episode's rows, `[episode, ...]` float64, of values `[row, ...]`."""
    sums = np.zeros((n_episodes, *values.shape[1:]))
    np.add.at(sums, places, values)
    return sums


def bootstrap_weights(n_episodes: int, repetitions: int, rng: np.random.Generator) -> np.ndarray:
    """How often each episode is drawn, `[repetition, episode]`: as many as there are, with replacement.

    A statistic of sums over episodes is then one product: `weights @ sums`.
    """
    return rng.multinomial(n_episodes, np.full(n_episodes, 1 / n_episodes), size=repetitions).astype(np.float64)


def half_samples(n_blocks: int, repetitions: int, rng: np.random.Generator) -> np.ndarray:
    """Which blocks are kept, `[repetition, block]` of 0 and 1: half of them, drawn without replacement.

    For statistics that a row counted twice would distort, as a correlation fitted in many dimensions.
    """
    order = np.argsort(rng.random((repetitions, n_blocks)), axis=1)
    return (order < n_blocks // 2).astype(np.float64)


def percentile_interval(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high `[...]` of bootstrap samples `[repetition, ...]`; NaN samples are left out."""
    tail = 100 * (1 - CONFIDENCE) / 2
    some = np.isfinite(samples).any(axis=0)
    low, high = (np.full(samples.shape[1:], np.nan) for _ in range(2))
    if some.any():
        low[some], high[some] = np.nanpercentile(samples[:, some], [tail, 100 - tail], axis=0)
    return low, high


def half_sample_interval(value: float, samples: np.ndarray, n_blocks: int) -> tuple[float, float]:
    """Low and high of a statistic from its values `[repetition]` on halves of the blocks.

    The deviations from their own mean stand for those of the whole: on n/2 of n they have the variance of the
    estimate itself (the delete-d jackknife with d = n/2, whose factor (n - d)/d is 1).

    Source: Shao and Wu 1989, A General Theory for Jackknife Variance Estimation, section 3.
    """
    kept = n_blocks // 2
    stretch = np.sqrt(kept / max(n_blocks - kept, 1))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile((samples - samples.mean()) * stretch, [tail, 100 - tail])
    return float(value + low), float(value + high)


def p_value_above(value: float, null: np.ndarray) -> float:
    """(1 + how many of the null are at least as large) / (1 + how many there are)."""
    return float((1 + np.sum(null >= value - 1e-12)) / (1 + len(null)))
