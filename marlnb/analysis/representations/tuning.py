"""Tuning: what single units respond to, with intervals over episodes and corrected against chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.policy_activations import policy_activations, untrained_policy
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.views import Units, View
from marlnb.analysis.representations.tuning_result import Tuning, UntrainedTuning
from marlnb.analysis.results import ALPHA, few_episodes_warning
from marlnb.analysis.stats.bootstrap import (
    bootstrap_means,
    bootstrap_weights,
    episode_index,
    episode_sums,
    percentile_interval,
)
from marlnb.analysis.stats.corrections import max_statistic
from marlnb.analysis.stats.linear_models import permute_by_episode
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MAX_CLASSES = 32
MIN_EPISODES_PER_BIN = 5


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


def tuning(
    recording: Recording,
    *,
    site: str,
    label: Label,
    agent: str | None = None,
    bins: int = 10,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
    n_shuffles: int = 100,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> Tuning:
    """Mean activation of each unit in each class of a label, or in bins of a quantity that hold equally many rows.

    A unit's strength is `eta² = between-bin variance / total variance`. It is above 0 by chance, more so for labels
    that change slowly, so each is reported next to its mean when whole episodes are given the labels of others.
    p-values are of eta² of the activations' ranks, against the most strongly tuned unit of each shuffle. Ranks are used
    since a unit that is rarely but strongly active has a heavier tail than others, and would mask them.

    Random features of an observation are tuned to it too. A network of the same architecture with random weights
    therefore sees the same time steps, and the result says whether the trained network's units are tuned more.

    Args:
        label: a label, `action`, `t`, a feature that the agent observes, (agent, field), an array or a function of the
            recording, as in `decode`. Whole numbers and booleans are classes.
        agent: whose units; None if the site has a single agent.
        bins: for a quantity.
        episodes: numbers of the episodes to use; None for all.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        n_shuffles: permutations of the labels over episodes.
        n_bootstrap: bootstrap samples of the episodes, for the intervals.
    Raises:
        AnalysisError: unknown label or agent; a label or units that never vary; more than 32 classes.
    Source: Kruskal and Wallis 1952, for the statistic on ranks; Westfall and Young 1993, section 2.3, for correction
        by the maximum, which needs statistics with similar tails.
    """
    if bins < 2 or n_shuffles < 20 or n_bootstrap < 20:
        raise AnalysisError(
            f"bins must be 2 or more, n_shuffles and n_bootstrap 20 or more; got {bins}, {n_shuffles}, {n_bootstrap}"
        )
    chosen = None if episodes is None else tuple(episodes)
    units = View(recording, site, agent, checkpoint=checkpoint, episodes=chosen).open()
    values = row_values(units, label)
    rows, missing = np.flatnonzero(values.known), values.missing_labels(units.agent)
    values = RowValues(values.values[rows], values.known[rows], values.name, values.names)
    x = units.all()[rows].astype(np.float64)
    if not len(rows) or np.ptp(values.values) == 0:
        raise AnalysisError(
            f"{values.name!r} never varies over {units.agent}'s {len(rows)} rows: no unit can be tuned to it"
        )
    if float(np.ptp(x, axis=0).max()) == 0:
        raise AnalysisError(f"{units.name} never varies: it is not tuned to anything")
    binned_rows = binned(values, bins)
    n_bins, episode = len(binned_rows), units.episode[rows]
    numbers, index = episode_index(episode)
    rng = np.random.default_rng(seed)
    weights = bootstrap_weights(len(numbers), n_bootstrap, rng)
    in_bins = [binned_rows.index == k for k in range(n_bins)]
    curve, low, high = np.stack([bootstrap_means(x[rows], index[rows], weights) for rows in in_bins], axis=1)
    x_and_ranks = np.concatenate([x, rankdata(x, axis=0)], axis=1)
    strength, of_ranks = np.split(eta_squared(x_and_ranks, binned_rows.index, n_bins), 2)
    permuted = [permute_by_episode(binned_rows.index, episode, rng) for _ in range(n_shuffles)]
    null = np.stack([eta_squared(x_and_ranks, bin_index, n_bins) for bin_index in permuted], axis=1)
    null, null_of_ranks = np.split(null, 2)
    random_x, no_control = _untrained_units(units, site, chosen, checkpoint, rows, seed)
    untrained = None
    if random_x is not None:
        best = x[:, strength.argmax()]
        untrained = _untrained_tuning(random_x, best, binned_rows, permuted, index, weights)
    episodes_per_bin = np.array([len(np.unique(episode[rows])) for rows in in_bins])
    thin_bins = (
        f"{binned_rows.names[k]!r} occurs in only {episodes_per_bin[k]} episodes"
        for k in np.flatnonzero(episodes_per_bin < MIN_EPISODES_PER_BIN)
    )
    return Tuning(
        site=site,
        agent=units.agent,
        agents=units.agents,
        label=values.name,
        is_class=values.is_class,
        bins=binned_rows.names,
        centres=binned_rows.centres,
        curve=curve,
        low=low,
        high=high,
        strength=strength,
        shuffled=null.mean(axis=1),
        p_value=max_statistic(of_ranks, null_of_ranks),
        count=np.bincount(binned_rows.index, minlength=n_bins),
        episodes=episodes_per_bin,
        mean=x.mean(axis=0),
        scale=x.std(axis=0),
        n_shuffles=n_shuffles,
        n_episodes=len(numbers),
        untrained=untrained,
        warnings=(
            *few_episodes_warning(len(numbers)),
            *thin_bins,
            *duplicate_episode_warnings(recording, episode),
            *missing.warnings,
        ),
        notes=(*missing.notes, *no_control),
    )


def _untrained_units(
    units: Units, site: str, episodes: tuple[int, ...] | None, checkpoint: int | None, positions: np.ndarray, seed: int
) -> tuple[np.ndarray | None, list[str]]:
    """Activations `[row, unit]` of an untrained network at positions among the units' rows; or None and the reason."""
    source = units.source
    rows = source.rows(episodes, source.resolve_checkpoint(checkpoint))
    policy, reasons = untrained_policy(source, site, rows, seed)
    if policy is None:
        return None, reasons
    if site not in [candidate.name for candidate in policy.sites()]:
        return None, [f"no untrained network to compare with: {site} is not among its sites"]
    values = policy_activations(source, policy, site, rows)[:, units.agent_index]
    return values[np.isin(rows.index, units.index)][positions].astype(np.float64), []


def _untrained_tuning(
    x: np.ndarray,
    best: np.ndarray,
    bins: Bins,
    permuted: Sequence[np.ndarray],
    episode: np.ndarray,
    weights: np.ndarray,
) -> UntrainedTuning:
    """Tuning of an untrained network's units, next to the trained network's most strongly tuned unit.

    Args:
        x: `[row, unit]`, of the untrained network.
        best: `[row]`, of that trained unit.
        permuted: bin indices `[row]` of each shuffle.
        episode: `[row]`, each row's index in `weights`.
        weights: `[sample, episode]`, of the bootstrap.
    """
    n_bins = len(bins)
    strength, ranks = eta_squared(x, bins.index, n_bins), rankdata(x, axis=0)
    null = np.stack([eta_squared(ranks, bin_index, n_bins) for bin_index in permuted], axis=1)
    p_value = max_statistic(eta_squared(ranks, bins.index, n_bins), null)
    pair = np.column_stack([best, x[:, strength.argmax()]])
    trained, untrained = _resampled_eta_squared(pair, bins.index, n_bins, episode, weights).T
    low, high = percentile_interval((trained - untrained)[:, None])
    gain = float(eta_squared(best[:, None], bins.index, n_bins)[0] - strength.max())
    return UntrainedTuning(strength, int((p_value < ALPHA).sum()), gain, float(low[0]), float(high[0]))


def _resampled_eta_squared(
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


def eta_squared(x: np.ndarray, bin_index: np.ndarray, n_bins: int) -> np.ndarray:
    """`sum_k n_k (mean_k - mean)² / sum_i (x_i - mean)²`, the share of variance between bins.

    Args:
        x: `[row, unit]`.
        bin_index: `[row]` in `[0, n_bins)`.
    Returns:
        `[unit]`; 0 for a unit that never varies.
    """
    count = np.bincount(bin_index, minlength=n_bins).astype(float)
    centre = x.mean(axis=0)
    means = (np.arange(n_bins)[:, None] == bin_index).astype(float) @ x / np.maximum(count, 1)[:, None]
    between = count @ (means - centre) ** 2
    total = ((x - centre) ** 2).sum(axis=0)
    return np.where(total > 1e-12 * len(x), between / np.where(total > 0, total, 1), 0.0)


def tuned_beyond_chance(
    x: np.ndarray, bin_index: np.ndarray, n_bins: int, episode: np.ndarray, *, n_shuffles: int, rng: np.random.Generator
) -> np.ndarray:
    """p-values `[unit]` of eta² of the ranks of `[row, unit]`, against the best unit of each shuffle of episodes."""
    ranks = rankdata(x, axis=0)
    permuted = (permute_by_episode(bin_index, episode, rng) for _ in range(n_shuffles))
    null = np.stack([eta_squared(ranks, permuted_index, n_bins) for permuted_index in permuted], axis=1)
    return max_statistic(eta_squared(ranks, bin_index, n_bins), null)
