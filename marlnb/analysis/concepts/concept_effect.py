"""The effect of a concept on an output to first order: by how much the output grows from rows without to rows with it.

TCAV counts signs: where an output is linear in the units, any direction whatever gives 0 or 1, and one that the output
hardly reads counts like one that it hangs on. The same derivative along the way from the units' mean without the
concept to that with it has a size, in the output's own units, and an interval; and other concepts can be held fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.labels import Labels
from marlnb.analysis.representations.tuning import tuned_beyond_chance
from marlnb.analysis.stats.bootstrap import bootstrap_weights, episode_places, episode_sums, percentile_interval
from marlnb.analysis.stats.linear_models import permute_by_episode

LEVEL = 0.05
TUNING_SHUFFLES = 199
BINS = 10
"""Of a quantity that is held fixed: within each of so many bins, beside its linear part."""


@dataclass(frozen=True)
class ConceptEffect:
    """By how much an output grows with a concept, in the output's units.

    Attributes:
        low, high: 95% interval over episodes. random: 95% of what shuffled episodes give lie within plus or minus it.
        p_value: two-sided, of shuffled episodes.
    """

    value: float
    low: float
    high: float
    random: float
    p_value: float


def concept_effect(
    along: np.ndarray,
    truth: np.ndarray,
    held: np.ndarray,
    episode: np.ndarray,
    *,
    n_shuffles: int,
    repetitions: int,
    rng: np.random.Generator,
) -> ConceptEffect:
    """The coefficient of a concept in a regression of an output's linear part on it and on what is held fixed.

    Args:
        along: `[row]`, activations times the output's mean derivative; truth: `[row]` bool; held: `[row, column]` as
            `held_fixed` gives it; episode: `[row]`, in order.
    Source: Freedman and Lane 1983, A Nonstochastic Interpretation of Reported Significance Levels: residuals are
        shuffled, here between whole episodes.
    """
    design = np.column_stack([held, truth.astype(float)])
    rest, own = without(along[:, None], held)[:, 0], without(design[:, -1:], held)[:, 0]
    size = max(float(own @ own), 1e-12)
    value = float(own @ rest) / size
    null = np.array([own @ permute_by_episode(rest, episode, rng) for _ in range(n_shuffles)]) / size
    numbers, places = episode_places(episode)
    products = episode_sums(design[:, :, None] * design[:, None, :], places, len(numbers))
    targets = episode_sums(design * along[:, None], places, len(numbers))
    weights = bootstrap_weights(len(numbers), repetitions, rng)
    left, right = np.tensordot(weights, products, 1), weights @ targets
    samples = (np.linalg.pinv(left, rcond=1e-9, hermitian=True) @ right[:, :, None])[:, -1, 0]
    low, high = percentile_interval(samples[:, None])
    p = float((1 + np.sum(np.abs(null) >= abs(value) - 1e-12)) / (1 + n_shuffles))
    return ConceptEffect(value, float(low[0]), float(high[0]), float(np.quantile(np.abs(null), 0.95)), p)


@dataclass(frozen=True)
class Followed:
    """How much an output moves through the units that are tuned to a concept, whatever it is that these follow.

    Attributes:
        spread: standard deviation over rows, in the output's units; low: lower end of its 95% interval over episodes.
        p_value: of the most strongly tuned unit, corrected for the units. units: the tuned ones.
    """

    spread: float
    low: float
    p_value: float
    units: np.ndarray


def followed(
    x: np.ndarray, slope: np.ndarray, truth: np.ndarray, episode: np.ndarray, rng: np.random.Generator
) -> Followed:
    """Finds the units `[row, unit]` that are tuned to a concept, and what of the output goes through them.

    A mean effect is blind to a gate: units that follow one thing where the concept holds and another where it does not
    may have the same mean. Args: slope: `[unit]`, the output's mean derivative.
    """
    p = tuned_beyond_chance(x, truth.astype(np.int64), 2, episode, n_shuffles=TUNING_SHUFFLES, rng=rng)
    units = np.flatnonzero(p <= LEVEL)
    along = (x[:, units] - x[:, units].mean(axis=0)) @ slope[units]
    numbers, places = episode_places(episode)
    moments = episode_sums(np.column_stack([np.ones(len(x)), along, along**2]), places, len(numbers))
    count, first, second = (bootstrap_weights(len(numbers), 200, rng) @ moments).T
    low, _ = percentile_interval(np.sqrt(np.maximum(second / count - (first / count) ** 2, 0))[:, None])
    return Followed(float(along.std()), float(low[0]), float(p.min(initial=1.0)), units)


def held_fixed(given: Sequence[Labels], keep: np.ndarray, agent: int) -> np.ndarray:
    """A constant; and of every label its classes, or a quantity and BINS of it: `[row, column]`."""
    columns = [np.ones(int(keep.sum()))]
    for labels in given:
        values = labels.values[keep, agent]
        if values.dtype.kind in "iub":
            columns += [(values == one).astype(float) for one in np.unique(values)[1:]]
            continue
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))[1:-1]
        place = np.searchsorted(edges, values, side="right")
        columns += [values.astype(float), *((place == k).astype(float) for k in range(1, len(edges) + 1))]
    return np.column_stack(columns)


def without(x: np.ndarray, held: np.ndarray) -> np.ndarray:
    """What is left of `[row, unit]` after a regression on `[row, column]`."""
    return np.asarray(x - held @ np.linalg.lstsq(held, x, rcond=None)[0])
