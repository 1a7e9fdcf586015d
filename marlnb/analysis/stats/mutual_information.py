"""Mutual information of discrete variables, in bits, from tables of counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.stats.bootstrap import bootstrap_weights, episode_index, p_value_above, percentile_interval
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle


@dataclass(frozen=True)
class MutualInformation:
    """Mutual information of two variables, in bits.

    Attributes:
        a: name of one variable.
        b: name of the other.
        bits: the plug-in estimate, which is never below 0 and biased upwards.
        low: lower end of its 95% interval over episodes.
        high: upper end of its 95% interval over episodes.
        chance: its mean when each episode of one variable is paired with another episode of the other.
        corrected: `bits` after Miller and Madow's correction of the bias.
        share: `corrected` / the smaller of the two entropies: 1 if one variable determines the other.
        p_value: of `bits` against chance.
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


def counts(a: np.ndarray, b: np.ndarray, n_a: int, n_b: int) -> np.ndarray:
    """`[a, b]`: how often two indices `[row]` occur together."""
    return np.bincount(a * n_b + b, minlength=n_a * n_b).reshape(n_a, n_b).astype(float)


def entropy_bits(table: np.ndarray) -> np.ndarray:
    """Plug-in entropy `[...]` of counts `[..., value]`: H = -sum_k p_k log2 p_k with p = counts / total."""
    total = table.sum(axis=-1, keepdims=True)
    p = table / np.where(total > 0, total, 1)
    return np.asarray(-(p * np.log2(np.where(p > 0, p, 1))).sum(axis=-1))


def mutual_information_bits(table: np.ndarray) -> np.ndarray:
    """Plug-in mutual information `[...]` of counts `[..., a, b]`: I(a; b) = H(a) + H(b) - H(a, b)."""
    joint = entropy_bits(table.reshape(*table.shape[:-2], -1))
    return np.maximum(entropy_bits(table.sum(-1)) + entropy_bits(table.sum(-2)) - joint, 0.0)


def miller_madow_bits(table: np.ndarray) -> float:
    """Mutual information of counts `[a, b]`, corrected for the bias of the plug-in entropies.

    With K_a, K_b, K_ab the numbers of occupied cells and n the number of rows:

        I_MM = I + ((K_a - 1) + (K_b - 1) - (K_ab - 1)) / (2 n ln 2)

    Source: Miller 1955, Note on the bias of information estimates; see Paninski 2003, Estimation of Entropy and Mutual
        Information, section 4.
    """
    n = table.sum()
    excess_cells = (np.sum(table.sum(1) > 0) - 1) + (np.sum(table.sum(0) > 0) - 1) - (np.sum(table > 0) - 1)
    return float(max(mutual_information_bits(table) + excess_cells / (2 * n * np.log(2)), 0.0))


def mutual_information(
    a: np.ndarray,
    b: np.ndarray,
    episode: np.ndarray,
    t: np.ndarray,
    *,
    names: tuple[str, str],
    n_shuffles: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> MutualInformation:
    """Mutual information of discrete a `[row]` and b `[row]`; rows in order of episode and time."""
    (values_a, a), (values_b, b) = (np.unique(x, return_inverse=True) for x in (a, b))
    n_a, n_b = len(values_a), len(values_b)
    numbers, index = episode_index(episode)
    cells = counts(index, a * n_b + b, len(numbers), n_a * n_b)
    table = cells.sum(axis=0).reshape(n_a, n_b)
    bits = float(mutual_information_bits(table))
    resampled = (bootstrap_weights(len(numbers), n_bootstrap, rng) @ cells).reshape(-1, n_a, n_b)
    low, high = percentile_interval(mutual_information_bits(resampled))
    shuffle = EpisodeShuffle(episode, t)
    permuted = (shuffle.permute(b, rng) for _ in range(n_shuffles))
    null = np.array([float(mutual_information_bits(counts(a, other, n_a, n_b))) for other in permuted])
    entropies = float(entropy_bits(table.sum(1))), float(entropy_bits(table.sum(0)))
    smaller = min(entropies)
    corrected = min(miller_madow_bits(table), smaller)
    share = min(corrected / smaller, 1.0) if smaller > 0 else 0.0
    chance, p_value = float(null.mean()), p_value_above(bits, null)
    return MutualInformation(*names, bits, float(low), float(high), chance, corrected, share, p_value, *entropies)
