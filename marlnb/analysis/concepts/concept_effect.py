"""The first-order effect of a concept on an output, in the output's units.

TCAV counts signs. Where an output is linear in the units, every direction scores 0 or 1, even one that hardly matters
to the output. The derivative along the way from the units' mean without the concept to that with it has a size and an
interval, and other concepts can be held fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.labels import Labels
from marlnb.analysis.representations.eta_squared import tuned_beyond_chance
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.bootstrap import bootstrap_weights, episode_index, episode_sums, percentile_interval
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle

N_TUNING_SHUFFLES = 199
N_BOOTSTRAP = 200
N_BINS = 10
"""A quantity is held fixed by its linear part and within each of this many bins."""


@dataclass(frozen=True)
class ConceptEffect:
    """By how much an output grows with a concept, in the output's units.

    Attributes:
        value: the effect.
        low: lower end of its 95% bootstrap interval over episodes.
        high: upper end of that interval.
        random: 95% of the effects with shuffled episodes are within plus or minus this value.
        p_value: two-sided, against shuffled episodes.
    """

    value: float
    low: float
    high: float
    random: float
    p_value: float


def concept_effect(
    linear_output: np.ndarray,
    truth: np.ndarray,
    controls: np.ndarray,
    episode: np.ndarray,
    t: np.ndarray,
    *,
    n_shuffles: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> ConceptEffect:
    """The coefficient b of the concept in `x · mean_gradient = b concept + c · controls + error`.

    Args:
        linear_output: `[row]`, activations times the output's mean gradient.
        truth: `[row]` bool, the concept.
        controls: `[row, column]`, as `control_columns` gives it.
        episode: `[row]`, in order.
        t: `[row]`, the time step.
    Source: Freedman and Lane 1983, A Nonstochastic Interpretation of Reported Significance Levels: residuals are
        permuted, here between whole episodes.
    """
    design = np.column_stack([controls, truth.astype(float)])
    output_rest = residuals(linear_output[:, None], controls)[:, 0]
    concept_rest = residuals(design[:, -1:], controls)[:, 0]
    size = max(float(concept_rest @ concept_rest), 1e-12)
    value = float(concept_rest @ output_rest) / size
    shuffle = EpisodeShuffle(episode, t)
    null = np.array([concept_rest @ shuffle.permute(output_rest, rng) for _ in range(n_shuffles)]) / size
    numbers, index = episode_index(episode)
    products = episode_sums(design[:, :, None] * design[:, None, :], index, len(numbers))
    targets = episode_sums(design * linear_output[:, None], index, len(numbers))
    weights = bootstrap_weights(len(numbers), n_bootstrap, rng)
    left, right = np.tensordot(weights, products, 1), weights @ targets
    samples = (np.linalg.pinv(left, rcond=1e-9, hermitian=True) @ right[:, :, None])[:, -1, 0]
    low, high = percentile_interval(samples[:, None])
    p = float((1 + np.sum(np.abs(null) >= abs(value) - 1e-12)) / (1 + n_shuffles))
    return ConceptEffect(value, float(low[0]), float(high[0]), float(np.quantile(np.abs(null), 0.95)), p)


@dataclass(frozen=True)
class TunedUnitsEffect:
    """How much an output moves through the units that are tuned to a concept, whatever else they follow.

    Attributes:
        deviation: standard deviation over rows, in the output's units.
        low: lower end of its 95% bootstrap interval over episodes.
        p_value: of the most strongly tuned unit, corrected for the number of units.
        units: the tuned units.
    """

    deviation: float
    low: float
    p_value: float
    units: np.ndarray


def tuned_units_effect(
    x: np.ndarray,
    gradient: np.ndarray,
    truth: np.ndarray,
    episode: np.ndarray,
    t: np.ndarray,
    rng: np.random.Generator,
) -> TunedUnitsEffect:
    """Standard deviation of `sum over tuned units of (x_u - mean_u) gradient_u`.

    A mean effect misses a gate: units that follow one thing if the concept is true and another if it is false may have
    the same mean.

    Args:
        x: `[row, unit]`.
        gradient: `[unit]`, the output's mean gradient.
        truth: `[row]` bool, the concept.
        episode: `[row]`.
        t: `[row]`, the time step.
    """
    p = tuned_beyond_chance(x, truth.astype(np.int64), 2, episode, t, n_shuffles=N_TUNING_SHUFFLES, rng=rng)
    units = np.flatnonzero(p <= ALPHA)
    contribution = (x[:, units] - x[:, units].mean(axis=0)) @ gradient[units]
    numbers, index = episode_index(episode)
    moments = episode_sums(np.column_stack([np.ones(len(x)), contribution, contribution**2]), index, len(numbers))
    count, first, second = (bootstrap_weights(len(numbers), N_BOOTSTRAP, rng) @ moments).T
    low, _ = percentile_interval(np.sqrt(np.maximum(second / count - (first / count) ** 2, 0))[:, None])
    return TunedUnitsEffect(float(contribution.std()), float(low[0]), float(p.min(initial=1.0)), units)


def control_columns(controls: Sequence[Labels], rows: np.ndarray, agent_index: int) -> np.ndarray:
    """Regressors that hold labels fixed, `[row, column]`.

    A constant; for each label with classes an indicator of each class but the first; for each quantity its value and
    indicators of N_BINS bins.
    """
    columns = [np.ones(int(rows.sum()))]
    for labels in controls:
        values = labels.values[rows, agent_index]
        if values.dtype.kind in "iub":
            columns += [(values == value).astype(float) for value in np.unique(values)[1:]]
            continue
        edges = np.unique(np.quantile(values, np.linspace(0, 1, N_BINS + 1)))[1:-1]
        bin_index = np.searchsorted(edges, values, side="right")
        columns += [values.astype(float), *((bin_index == k).astype(float) for k in range(1, len(edges) + 1))]
    return np.column_stack(columns)


def residuals(x: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """What is left of `[row, unit]` after a least-squares regression on `[row, column]`."""
    return np.asarray(x - controls @ np.linalg.lstsq(controls, x, rcond=None)[0])
