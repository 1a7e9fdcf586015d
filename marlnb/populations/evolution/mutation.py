"""Kinds of mutation, and how often each is drawn."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from marlnb.evolution_config import Probabilities

NONE, HYPERPARAMETERS = "none", "hyperparameters"


def draw_kind(rng: np.random.Generator, probability: Probabilities) -> str:
    """A kind of mutation, in proportion to its probability."""
    weights = asdict(probability)
    cumulative = np.cumsum(list(weights.values()))
    position = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return list(weights)[min(position, len(weights) - 1)]
