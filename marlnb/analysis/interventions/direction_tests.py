"""Tests of directions: what erasing them and steering along them changes, next to random directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from marlnb.analysis.data.trajectories import Trajectories
from marlnb.analysis.interventions.action_sensitivity import ActionSensitivity
from marlnb.analysis.interventions.usage_result import UsageTest
from marlnb.analysis.stats.given_patterns import without
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.analysis.stats.random_directions import (
    MAX_VARIANCE_MISMATCH,
    MIN_FREE_DIMENSIONS,
    free_dimensions,
    matched_directions,
    random_directions,
)
from marlnb.models.hooks.directions import Direction, Erase, Steer
from marlnb.models.hooks.edit import Edit
from marlnb.specs import derive_seed

EDITS = ("erase", "steer")


@dataclass(frozen=True)
class Controls:
    """Sets of random directions, each with as many as are tested together.

    Attributes:
        random: of the same length.
        matched: of the same length, with as much of the activations' variance along them; may be empty.
    """

    random: Sequence[Sequence[Direction]]
    matched: Sequence[Sequence[Direction]]


@dataclass(frozen=True)
class DirectionTests:
    """Tests of one direction, or of several together, on the same episodes.

    Attributes:
        directions: the tested ones.
        sensitivity: measures effects.
        activations: `[step, unit]`.
        n_random: random directions of each kind.
        strength: of the steering.
        seed: of the random directions.
        play: plays the episodes with edits.
    """

    directions: tuple[Direction, ...]
    sensitivity: ActionSensitivity
    activations: np.ndarray
    n_random: int
    strength: float
    seed: int
    play: Callable[[Sequence[Edit]], list[Trajectories]]

    @property
    def vectors(self) -> np.ndarray:
        """`[direction, unit]`."""
        return np.array([direction.vector for direction in self.directions])

    @cached_property
    def covariance(self) -> np.ndarray:
        return np.atleast_2d(np.cov(self.activations.T))

    def run(self, basis: np.ndarray | None = None, *, given: str = "", replay: bool = True) -> tuple[UsageTest, ...]:
        """A test of each edit; none where nothing is left of the directions, or too few dimensions for random ones.

        Args:
            basis: `[pattern, unit]`, removed from the directions and from the random ones.
            given: names of what has these patterns.
            replay: play the episodes with the edits, for the change of returns.
        """
        directions, share_left = self.directions, 1.0
        if basis is not None:
            rest, left = without(self.vectors, basis)
            scaled = [replace(d, scale=d.scale * size) for d, size in zip(directions, left)]
            kept = left > 0
            directions = tuple(with_vectors([d for d, k in zip(scaled, kept) if k], rest[kept], self.activations))
            share_left = float(np.sqrt((left**2).mean()))
        vectors = np.array([direction.vector for direction in directions])
        if not directions or free_dimensions(vectors, basis) < MIN_FREE_DIMENSIONS:
            return ()
        rng = np.random.default_rng(derive_seed(self.seed, "usage"))
        matched, mismatch = matched_directions(vectors, self.covariance, self.n_random, rng, basis)
        random = random_directions(vectors, self.n_random, rng, basis)
        if mismatch > MAX_VARIANCE_MISMATCH:
            matched = matched[:0]
        controls = Controls(
            [with_vectors(directions, vectors, self.activations) for vectors in random],
            [with_vectors(directions, vectors, self.activations) for vectors in matched],
        )
        tests = (self._test(kind, directions, controls, replay) for kind in EDITS)
        return tuple(replace(test, given=given, share_left=share_left) for test in tests)

    def _test(self, kind: str, directions: Sequence[Direction], controls: Controls, replay: bool) -> UsageTest:
        sets = [directions, *controls.random, *controls.matched]
        edits = [edit for tested in sets for edit in _edits(kind, tested, self.strength)]
        by_edit = self.sensitivity.effects(edits)
        by_set = by_edit.reshape(len(sets), -1, by_edit.shape[1]).mean(axis=1)
        effect, of_controls = paired_test(by_set[0]), np.nanmean(by_set[1:], axis=1)
        random, matched = np.split(of_controls, [len(controls.random)])
        changes = np.full(2, np.nan)
        if replay:
            forwards = self.play(edits[:1])
            changes = self.sensitivity.returns(forwards) - self.sensitivity.returns(self.sensitivity.baseline)
        returns = paired_test(changes)
        return UsageTest(
            edit="erase" if kind == "erase" else "steer",
            effect=effect.mean,
            low=max(effect.low, 0.0),
            high=effect.high,
            random_mean=float(random.mean()),
            random_high=float(np.quantile(random, 0.95)),
            p_value=_share_at_least(random, effect.mean),
            matched_mean=float(matched.mean()) if len(matched) else None,
            p_matched=_share_at_least(matched, effect.mean) if len(matched) else None,
            return_change=returns.mean,
            return_low=returns.low,
            return_high=returns.high,
            random=tuple(random.tolist()),
        )


def _share_at_least(random: np.ndarray, effect: float) -> float:
    return float((1 + (random >= effect).sum()) / (1 + len(random)))


def _edits(kind: str, directions: Sequence[Direction], strength: float) -> list[Edit]:
    """The edits to be tried, each by itself; the first one steers forwards along the first direction."""
    site, agents = directions[0].site, (directions[0].agent,)
    if kind == "erase":
        return [Erase(site, tuple(directions), agents=agents)]
    return [Steer(site, direction, sign * strength, agents=agents) for direction in directions for sign in (1, -1)]


def with_vectors(directions: Sequence[Direction], vectors: np.ndarray, activations: np.ndarray) -> list[Direction]:
    """The directions with other vectors: steered as far as they are, erased to the mean along the new vector."""
    means = activations.mean(axis=0)
    return [
        replace(direction, vector=tuple(vector), mean=float(vector @ means), concept="random")
        for direction, vector in zip(directions, vectors)
    ]
