"""TCAV's score: the share of rows at which an output rises along a concept's direction, and its p-value."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.decoding.linear_decoder import DirectionKind
from marlnb.analysis.stats.bootstrap import p_value_above
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.linear_models import fit_logistic
from marlnb.analysis.stats.logistic import fit_logistics

N_TOGETHER = 50
"""Concepts that are fitted at once: their numbers of all rows are in memory together."""


def tcav_score(gradient: np.ndarray, direction: np.ndarray) -> float:
    """The share of rows at which an output's derivative along a direction is positive.

    Args:
        gradient: `[row, unit]`, of the output with respect to the units.
        direction: `[unit]`.
    """
    return float((gradient @ direction > 0).mean())


def concept_vector(x: np.ndarray, truth: np.ndarray, kind: DirectionKind) -> tuple[np.ndarray, float]:
    """The direction `[unit]` from rows without to rows with a concept, and the threshold on it that separates them.

    Args:
        x: `[row, unit]`.
        truth: `[row]` bool.
    """
    weights, intercept = fit_logistic(x, truth.astype(np.int64))
    vector, threshold = weights[1] - weights[0], intercept[0] - intercept[1]
    if kind == "filter":
        return vector, float(threshold)
    mean_true, mean_false = x[truth].mean(axis=0), x[~truth].mean(axis=0)
    pattern = (mean_true - mean_false).astype(np.float64)
    return pattern, float(pattern @ (mean_true + mean_false) / 2)


def score_p_value(
    x: np.ndarray,
    truth: np.ndarray,
    gradient: np.ndarray,
    shuffle: EpisodeShuffle,
    kind: DirectionKind,
    n_shuffles: int,
    rng: np.random.Generator,
) -> float:
    """Two-sided p-value of the score of a concept, against those of the concepts of shuffled episodes.

    With s_0 the score along the concept's direction in all episodes, s_1, ..., s_B along those of shuffled concepts:

        d_b = |s_b - mean(s_0, ..., s_B)|,    p = (1 + #{b >= 1: d_b >= d_0}) / (1 + B)

    Runs on random halves of the same episodes are no independent samples: a t-test or rank test of them finds a
    difference in more than a third of all concepts that mean nothing.

    Args:
        x: `[row, unit]`.
        truth: `[row]` bool, the concept.
        gradient: `[counted row, unit]`, the output's derivative with respect to the units.
        n_shuffles: B.
    Source: a permutation test (Phipson and Smyth 2010, Permutation P-values Should Never Be Zero) of whole episodes.
    """
    truths = np.stack([truth, *(shuffle.permute(truth, rng) for _ in range(n_shuffles))], axis=1)
    truths = truths[:, truths.any(axis=0) & ~truths.all(axis=0)]
    groups = np.array_split(truths, range(N_TOGETHER, truths.shape[1], N_TOGETHER), axis=1)
    scores = np.concatenate([(gradient @ _directions(x, group, kind).T > 0).mean(axis=0) for group in groups])
    distance = np.abs(scores - scores.mean())
    return p_value_above(float(distance[0]), distance[1:])


def _directions(x: np.ndarray, truths: np.ndarray, kind: DirectionKind) -> np.ndarray:
    """`[concept, unit]`, as `concept_vector` gives them, of concepts `[row, concept]` bool."""
    if kind == "filter":
        weights = fit_logistics(x, truths).weights[0]
        return np.asarray(weights[1] - weights[0])
    n_true = truths.sum(axis=0)[:, None]
    of_true = truths.T.astype(np.float64) @ x
    return np.asarray(of_true / n_true - (x.sum(axis=0, dtype=np.float64) - of_true) / (len(x) - n_true))
