"""Kinds of claim about a dictionary's features: single directions, their span and their effects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.errors import AnalysisError
from marlnb.groundtruth.answer_key import AnswerKey, Node
from marlnb.groundtruth.scoring.claims import (
    DECOY_OVERLAP,
    DirectionEffect,
    Item,
    SiteClaim,
    Truth,
    at_node,
    claim_kind,
    describe,
    largest_effect,
    largest_share_in,
    orthonormal_basis,
    readout_effect,
    share_right,
    within_tolerance,
)

CIRCUIT_IN_FEATURE = 0.1
"""A feature is the decoy's only if less than this share of its direction lies in the circuit's units."""


@dataclass(frozen=True)
class DirectionsClaim(SiteClaim):
    """Directions that features write. Score: how much of each driven direction they recover, without decoys' units.

    Attributes:
        basis: `[direction][unit]`.
    """

    basis: tuple[tuple[float, ...], ...]

    @classmethod
    def recovered(cls, claims: Sequence[DirectionsClaim], node: Node, truth: Truth) -> list[float]:
        if not node.readout:
            return []
        excluded = [unit for decoy in at_node(truth.key.decoys, node) if not decoy.basis for unit in decoy.units]
        bases = [np.array(claim.basis) for claim in claims]
        return [cls.best_share(bases, direction, excluded) for direction in _driven_directions(node)]

    @staticmethod
    @abstractmethod
    def best_share(bases: list[np.ndarray], direction: np.ndarray, excluded: list[int]) -> float:
        """How much of a direction `[unit]` the claimed bases recover, without the excluded units."""


@claim_kind("features")
@dataclass(frozen=True)
class FeatureClaim(DirectionsClaim):
    """One feature: what it writes when the concept is present, and by which it moves the choices.

    Score: for each driven direction the squared cosine with the nearest feature, without decoys' units: units that
    are always equal cannot be distinguished by what they encode.

    Attributes:
        basis: one direction, `[1][unit]`.
    Raises:
        AnalysisError: another number of directions.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.basis, tuple) or len(self.basis) != 1:
            given = f"{len(self.basis)} directions" if isinstance(self.basis, tuple) else repr(self.basis)
            raise AnalysisError(
                f"a claim of kind {self.kind!r} has a basis of one direction, got {given}; "
                "claim each feature by itself, or all of them as a 'span'"
            )

    @staticmethod
    def best_share(bases: list[np.ndarray], direction: np.ndarray, excluded: list[int]) -> float:
        return max((_cosine(basis[0], direction, excluded) ** 2 for basis in bases), default=0.0)

    def names_decoy(self, decoy: Node, circuit_units: list[int]) -> bool:
        """A feature that also has some of the circuit's units has a cause, and is no decoy's."""
        if decoy.basis:
            return largest_share_in(decoy, orthonormal_basis(self.basis)) > DECOY_OVERLAP
        shares = np.array(self.basis[0]) ** 2
        shares /= max(shares.sum(), 1e-12)
        return bool(
            shares[list(decoy.units)].sum() > DECOY_OVERLAP and shares[circuit_units].sum() < CIRCUIT_IN_FEATURE
        )


@claim_kind("span")
@dataclass(frozen=True)
class SpanClaim(DirectionsClaim):
    """The span of an agent's features.

    Score: for each driven direction its part p within the span of r of n dimensions, without decoys' units, beyond
    chance: (p - r / n) / (1 - r / n), so a span of everything scores 0.

    Attributes:
        basis: `[feature][unit]`.
    """

    @staticmethod
    def best_share(bases: list[np.ndarray], direction: np.ndarray, excluded: list[int]) -> float:
        rows = [basis for basis in bases if basis.size]
        return _share_in_span(np.concatenate(rows), direction, excluded) if rows else 0.0


@claim_kind("feature_effect")
@dataclass(frozen=True)
class FeatureEffectClaim(DirectionEffect):
    """How much an output grows for a step along a claimed feature.

    Score: share of claims within the tolerance. That an output does not grow is true of most directions, so a right
    claim of it does not count; a wrong one does.
    """

    @classmethod
    def score(cls, claims: Sequence[FeatureEffectClaim], truth: Truth) -> list[Item]:
        return [
            Item(cls.kind, describe(node), share_right(cls._are_right(at_node(claims, node), truth.key)))
            for node in truth.key.nodes
            if node.readout
        ]

    @classmethod
    def _are_right(cls, claims: Sequence[FeatureEffectClaim], key: AnswerKey) -> Iterator[bool]:
        for claim in claims:
            expected, largest = claim._effect(key)
            is_right = within_tolerance(claim.value, expected, largest)
            if not (is_right and within_tolerance(0.0, expected, largest)):
                yield is_right

    def _effect(self, key: AnswerKey) -> tuple[float, float]:
        """By how much the output grows as all readouts of the site say, and the largest effect of such a step."""
        expected = largest = 0.0
        for node in (*key.nodes, *key.minor):
            if (node.agent, node.site) == (self.agent, self.site):
                weights = dict(node.readout).get(self.output, (0.0,) * len(node.units))
                expected += readout_effect(self.direction, node.units, weights)
                largest = max(largest, largest_effect(self.direction, node.readout))
        return expected, largest


def _driven_directions(node: Node) -> list[np.ndarray]:
    """`[unit of the site]`, length 1: each unit; of a subspace what is written for each output, or drives it."""
    if node.written:
        return [np.array(direction) for direction in node.written]
    if not node.basis:
        return [np.eye(max(node.units) + 1)[unit] for unit in node.units]
    directions = []
    for _, weights in node.readout:
        direction = np.zeros(len(node.basis[0]))
        direction[list(node.units)] = weights
        directions.append(direction / np.linalg.norm(direction))
    return directions


def _cosine(feature: np.ndarray, direction: np.ndarray, excluded: list[int]) -> float:
    rest = feature.copy()
    rest[excluded] = 0.0
    size = float(np.linalg.norm(rest))
    return float(rest[: len(direction)] @ direction) / size if size > 0 else 0.0


def _share_in_span(rows: np.ndarray, direction: np.ndarray, excluded: list[int]) -> float:
    rest = np.delete(rows, excluded, axis=1)
    wanted = np.delete(np.pad(direction, (0, rows.shape[1] - len(direction))), excluded)
    basis = orthonormal_basis(rest)
    if not len(basis):
        return 0.0
    chance = len(basis) / len(wanted)
    part = float(np.square(basis @ wanted).sum() / np.square(wanted).sum())
    return max(0.0, (part - chance) / (1 - chance)) if chance < 1 else 0.0
