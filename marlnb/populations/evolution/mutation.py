"""Kinds of mutation: how often each is drawn, and what it makes of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from marlnb.errors import ConfigError
from marlnb.evolution_config import EvolutionConfig, Probabilities
from marlnb.experiment import Experiment
from marlnb.populations.evolution.architecture import Mutated, NetworkTarget, change_activation, deepen, widen
from marlnb.populations.evolution.hyperparameters import Mutable, mutate

NONE, HYPERPARAMETERS, WIDTH, DEPTH, ACTIVATION, PARAMETERS = (
    *("none", "hyperparameters", "width", "depth", "activation", "parameters"),
)
_OF_NETWORKS: dict[str, Callable[..., Mutated]] = {WIDTH: widen, DEPTH: deepen, ACTIVATION: change_activation}
PRESERVING = (WIDTH, DEPTH)  # what the networks compute stays the same


def draw_kind(rng: np.random.Generator, probability: Probabilities) -> str:
    """A kind of mutation, in proportion to its probability."""
    weights = asdict(probability)
    cumulative = np.cumsum(list(weights.values()))
    position = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return list(weights)[min(position, len(weights) - 1)]


def mutated(
    kind: str,
    rng: np.random.Generator,
    config: EvolutionConfig,
    experiment: Experiment,
    targets: tuple[Mutable, ...],
    networks: Sequence[NetworkTarget],
) -> tuple[Experiment, dict[str, list[Any]]]:
    """The experiment after a mutation of one kind, and by path old and new values. That of weights changes no option.

    Raises:
        ConfigError: the mutation is not possible here; the message says why.
    """
    if kind == HYPERPARAMETERS:
        return mutate(rng, config, experiment, targets)
    if kind == PARAMETERS:
        return experiment, {}
    if not networks:
        raise ConfigError("no group has a network that learns")
    return _OF_NETWORKS[kind](rng, config, experiment, networks[int(rng.integers(len(networks)))])
