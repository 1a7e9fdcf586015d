"""Mutual information of discrete variables, in bits, from tables of counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from marlnb.analysis.results import CONFIDENCE
from marlnb.analysis.stats.bootstrap import Interval, episode_index, p_value_above
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle


@dataclass(frozen=True)
class MutualInformation:
    """Mutual information of two variables, in bits.

    Attributes:
        a: name of one variable.
        b: name of the other.
        bits: the plug-in estimate, which is never below 0 and biased upwards.
        low: lower end of the 95% interval over episodes of `corrected`.
        high: upper end of that interval.
        chance: mean of `bits` when each episode of one variable is paired with another episode of the other.
        corrected: the jackknife estimate over episodes, without that bias.
        share: `corrected` / the smaller of the two entropies: 1 if one variable determines the other.
        p_value: of `bits` against chance, of rows with the weights of `EpisodeShuffle`.
        entropy_a: entropy of a.
        entropy_b: entropy of b.
    """

    a: str
    b: str
    bits: float
    low: float
    high: float
    chance: float
    corrected: float
    share: float
    p_value: float
    entropy_a: float
    entropy_b: float


def counts(a: np.ndarray, b: np.ndarray, n_a: int, n_b: int, weight: np.ndarray | None = None) -> np.ndarray:
    """`[a, b]`: how often two indices `[row]` occur together; weight: `[row]`, None: 1 each."""
    return np.bincount(a * n_b + b, weight, minlength=n_a * n_b).reshape(n_a, n_b).astype(float)


def entropy_bits(table: np.ndarray) -> np.ndarray:
    """Plug-in entropy `[...]` of counts `[..., value]`: H = -sum_k p_k log2 p_k with p = counts / total."""
    total = table.sum(axis=-1, keepdims=True)
    p = table / np.where(total > 0, total, 1)
    return np.asarray(-(p * np.log2(np.where(p > 0, p, 1))).sum(axis=-1))


def mutual_information_bits(table: np.ndarray) -> np.ndarray:
    """Plug-in mutual information `[...]` of counts `[..., a, b]`: I(a; b) = H(a) + H(b) - H(a, b)."""
    joint = entropy_bits(table.reshape(*table.shape[:-2], -1))
    return np.maximum(entropy_bits(table.sum(-1)) + entropy_bits(table.sum(-2)) - joint, 0.0)


def jackknife_bits(cells: np.ndarray) -> Interval:
    """Mutual information of counts `[episode, a, b]` without the bias of the plug-in estimate, and its interval.

    With I the plug-in estimate from all n episodes and I_-k the one without episode k:

        I_J = n I - (n - 1) mean_k I_-k,    SE^2 = (n - 1) / n sum_k (I_-k - mean_k I_-k)^2

    I_J is at most the smaller entropy. The interval is I_J ± t SE, with Student's t of n - 1 degrees of freedom, and at
    most the logarithm of the smaller number of values. A bootstrap of episodes would add the bias a second time.

    Source: Zahl 1977, Jackknifing an Index of Diversity; Efron and Tibshirani 1993, An Introduction to the Bootstrap,
        chapter 11.
    """
    n, table = len(cells), cells.sum(axis=0)
    bits = float(mutual_information_bits(table))
    without = mutual_information_bits(table - cells)
    smaller_entropy = min(float(entropy_bits(table.sum(axis))) for axis in (0, 1))
    max_bits = float(np.log2(min((table.sum(axis) > 0).sum() for axis in (0, 1))))
    value = float(np.clip(n * bits - (n - 1) * without.mean(), 0.0, smaller_entropy))
    error = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * np.sqrt((n - 1) * without.var()) if n > 1 else np.inf
    return Interval(value, float(max(value - error, 0.0)), float(min(value + error, max_bits)))


def mutual_information(
    a: np.ndarray,
    b: np.ndarray,
    episode: np.ndarray,
    t: np.ndarray,
    *,
    names: tuple[str, str],
    n_shuffles: int,
    rng: np.random.Generator,
) -> MutualInformation:
    """Mutual information of discrete a `[row]` and b `[row]`; rows in order of episode and time."""
    (values_a, a), (values_b, b) = (np.unique(x, return_inverse=True) for x in (a, b))
    n_a, n_b = len(values_a), len(values_b)
    numbers, index = episode_index(episode)
    cells = counts(index, a * n_b + b, len(numbers), n_a * n_b).reshape(-1, n_a, n_b)
    table = cells.sum(axis=0)
    bits = float(mutual_information_bits(table))
    jackknife = jackknife_bits(cells)
    shuffle = EpisodeShuffle(episode, t, b)
    permuted = [shuffle.permute(b, rng) for _ in range(n_shuffles)]
    chance = np.mean([mutual_information_bits(counts(a, other, n_a, n_b)) for other in permuted])
    weighted = np.stack([counts(a, other, n_a, n_b, shuffle.weight) for other in (b, *permuted)])
    score, *null = mutual_information_bits(weighted)
    entropies = float(entropy_bits(table.sum(1))), float(entropy_bits(table.sum(0)))
    smaller = min(entropies)
    share = jackknife.value / smaller if smaller > 0 else 0.0
    p_value = p_value_above(float(score), np.array(null))
    return MutualInformation(
        *names, bits, jackknife.low, jackknife.high, float(chance), jackknife.value, share, p_value, *entropies
    )
