"""Tuning: what single units respond to, with intervals over episodes and corrected against chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.views import View
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.analysis.stats.bootstrap import bootstrap_weights, episode_places, episode_sums, percentile_interval
from marlnb.analysis.stats.corrections import max_statistic
from marlnb.analysis.stats.linear_models import permute_by_episode
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MOST_CLASSES = 32
FEW_EPISODES = 20
EPISODES_A_BIN = 5


@dataclass(frozen=True)
class Bins:
    """Which bin each row lies in.

    Attributes:
        place: `[row]` in `[0, bin)`; names, centres: `[bin]`.
    """

    place: np.ndarray
    names: tuple[str, ...]
    centres: np.ndarray

    def __len__(self) -> int:
        return len(self.names)


def tuning(
    recording: Recording,
    *,
    site: str,
    by: Label,
    agent: str | None = None,
    bins: int = 10,
    episodes: tuple[int, ...] | None = None,
    checkpoint: int | None = None,
    n_shuffles: int = 100,
    repetitions: int = 200,
    seed: int = 0,
) -> Tuning:
    """Mean activation of each unit in each class, or in bins of a quantity that hold equally many rows.

    A unit's strength is eta squared, the variance between the bins as a share of all its variance. It is above 0 by
    chance alone and more so for labels that change slowly, so it stands beside what it is when whole episodes are given
    the labels of others. p-values are of the same share of the activations' ranks, against the strongest unit of each
    such shuffle: on ranks a unit that is rarely on, but then strongly, has no heavier tail than others, and does not
    drown them.

    Args:
        by: a label, `action`, `t`, a feature that the agent observes, (agent, field), an array or a function of the
            recording, as `decode` takes it. Whole numbers and booleans are classes.
        agent: whose units; None where the site is of one agent.
        bins: of a quantity. checkpoint: of a recording that spans several.
    Raises:
        AnalysisError: no such label or agent; a label that never varies; more than 32 classes; units that never vary.
    Source: of the statistic on ranks, Kruskal and Wallis 1952; that a largest statistic needs tests with like tails,
        Westfall and Young 1993, section 2.3.
    """
    if bins < 2 or n_shuffles < 20 or repetitions < 20:
        raise AnalysisError(
            f"tuning needs 2 bins, 20 shuffles and repetitions; got {bins}, {n_shuffles}, {repetitions}"
        )
    units = View(recording, site, agent, checkpoint=checkpoint, episodes=episodes).open()
    told = row_values(units, by)
    kept, left_out = np.flatnonzero(told.known), told.left_out(units.agent)
    told = RowValues(told.values[kept], told.known[kept], told.name, told.names)
    x = units.all()[kept].astype(np.float64)
    if not len(kept) or np.ptp(told.values) == 0:
        raise AnalysisError(f"{told.name!r} never varies over {units.agent}'s {len(kept)} rows: nothing is tuned to it")
    if float(np.ptp(x, axis=0).max()) == 0:
        raise AnalysisError(f"{units.name} never varies: it is tuned to nothing")
    found = binned(told, bins)
    episode = units.episode[kept]
    numbers, places = episode_places(episode)
    rng = np.random.default_rng(seed)
    curve, low, high, count = _curves(x, found, places, len(numbers), repetitions, rng)
    both = np.concatenate([x, rankdata(x, axis=0)], axis=1)
    strength, ranked = np.split(eta_squared(both, found.place, len(found)), 2)
    shuffled = [permute_by_episode(found.place, episode, rng) for _ in range(n_shuffles)]
    null, ranked_null = np.split(np.stack([eta_squared(both, place, len(found)) for place in shuffled], axis=1), 2)
    held = np.array([len(np.unique(episode[found.place == k])) for k in range(len(found))])
    return Tuning(
        site=site,
        agent=units.agent,
        agents=units.agents,
        by=told.name,
        is_class=told.is_class,
        bins=found.names,
        centres=found.centres,
        curve=curve,
        low=low,
        high=high,
        strength=strength,
        shuffled=null.mean(axis=1),
        p_value=max_statistic(ranked, ranked_null),
        count=count,
        episodes=held,
        mean=x.mean(axis=0),
        scale=x.std(axis=0),
        n_shuffles=n_shuffles,
        warnings=(*_doubts(len(numbers), found, held), *repeats(recording, episode), *left_out.doubts),
        notes=tuple(left_out.notes),
    )


def binned(told: RowValues, bins: int) -> Bins:
    """Classes as they are; a quantity in bins of about equally many rows, equal values in one: of few values, each has
    a bin of its own, and of many ties there are fewer bins than asked for."""
    if told.is_class:
        present, place = np.unique(told.values, return_inverse=True)
        if len(present) > MOST_CLASSES:
            raise AnalysisError(
                f"{told.name!r} has {len(present)} whole values; give it as a quantity (float) to be put into bins"
            )
        return Bins(place.reshape(-1), tuple(map(told.class_name, present)), np.arange(len(present), dtype=float))
    values = told.values.astype(np.float64)
    present = np.unique(values)
    rank = (rankdata(values) - 0.5) / len(values)
    share = np.searchsorted(present, values) if len(present) <= bins else np.floor(bins * rank)
    _, place = np.unique(share, return_inverse=True)
    held = [np.unique(values[place == k]) for k in range(place.max() + 1)]
    ends = [*(float(one[0]) for one in held[1:]), float(held[-1][-1])]
    names = tuple(f"{one[0]:.3g}" if len(one) == 1 else f"{one[0]:.3g} to {end:.3g}" for one, end in zip(held, ends))
    return Bins(place, names, np.array([values[place == k].mean() for k in range(len(held))]))


def eta_squared(x: np.ndarray, place: np.ndarray, n_bins: int) -> np.ndarray:
    """`[unit]`: variance between bins over all variance of `[row, unit]`; 0 for a unit that never varies."""
    count = np.bincount(place, minlength=n_bins).astype(float)
    centre = x.mean(axis=0)
    means = (np.arange(n_bins)[:, None] == place).astype(float) @ x / np.maximum(count, 1)[:, None]
    between = count @ (means - centre) ** 2
    total = ((x - centre) ** 2).sum(axis=0)
    return np.where(total > 1e-12 * len(x), between / np.where(total > 0, total, 1), 0.0)


def tuned_beyond_chance(
    x: np.ndarray, place: np.ndarray, n_bins: int, episode: np.ndarray, *, n_shuffles: int, rng: np.random.Generator
) -> np.ndarray:
    """p-values `[unit]` of the ranks of `[row, unit]`, against the strongest unit of each shuffle of the episodes."""
    ranks = rankdata(x, axis=0)
    shuffled = (permute_by_episode(place, episode, rng) for _ in range(n_shuffles))
    null = np.stack([eta_squared(ranks, other, n_bins) for other in shuffled], axis=1)
    return max_statistic(eta_squared(ranks, place, n_bins), null)


def _curves(
    x: np.ndarray, bins: Bins, places: np.ndarray, n_episodes: int, repetitions: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means `[bin, unit]` with low and high, and rows `[bin]`: sums over episodes, then episodes drawn anew."""
    weights = bootstrap_weights(n_episodes, repetitions, rng)
    shape = (len(bins), x.shape[1])
    curve, low, high = (np.full(shape, np.nan) for _ in range(3))
    for k in range(len(bins)):
        here = bins.place == k
        sums = episode_sums(x[here], places[here], n_episodes)
        counts = np.bincount(places[here], minlength=n_episodes).astype(float)
        curve[k] = sums.sum(axis=0) / counts.sum()
        drawn = weights @ counts
        samples = (weights @ sums) / np.where(drawn > 0, drawn, np.nan)[:, None]
        low[k], high[k] = percentile_interval(samples)
    return curve, low, high, np.bincount(bins.place, minlength=len(bins))


def _doubts(n_episodes: int, bins: Bins, held: np.ndarray) -> Iterator[str]:
    if n_episodes < FEW_EPISODES:
        yield f"only {n_episodes} episodes; intervals and chance are rough below {FEW_EPISODES}"
    for k in np.flatnonzero(held < EPISODES_A_BIN):
        yield f"{bins.names[k]!r} is in {held[k]} episodes only"
