"""Claim: one statement of an analysis about an instance, with its score. Each kind of claim is one registered class.

A new kind is one class in `circuit_claims.py` or `feature_claims.py`: its fields are its JSON, `score` compares the
claims of a finding with the answer key, and `count_decoys` counts the false discoveries that it can make.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from marlnb.errors import AnalysisError, unknown
from marlnb.groundtruth.answer_key import AnswerKey, Node, as_tuples

Onsets = Mapping[int, int]
EFFECT_TOLERANCE = 0.1
"""Largest relative error of an effect that counts as recovered."""
ZERO_TOLERANCE = 0.01
"""The same as a share of the largest effect, for effects near zero."""
DECOY_OVERLAP = 0.5
"""A claimed direction names a decoy if more than this share of it lies in the decoy's units."""
NONSENSE = "nonsense"
"""The concept that no agent can represent: a random class for each episode."""

C = TypeVar("C", bound="type[Claim]")
S = TypeVar("S", bound="SiteClaim")
HasSite = TypeVar("HasSite", bound=Any)


@dataclass(frozen=True)
class Item:
    """One thing to find.

    Attributes:
        kind: kind of claim.
        what: description.
        recovered: share that was found, in 0..1.
    """

    kind: str
    what: str
    recovered: float


@dataclass(frozen=True)
class Truth:
    """What claims are compared with.

    Attributes:
        key: the answer key.
        onsets: the true onset step of each episode of the recording (`onset_steps`); None if not known.
    """

    key: AnswerKey
    onsets: Onsets | None = None


@dataclass(frozen=True)
class Claim(ABC):
    """One statement about an instance.

    Attributes:
        kind: name of the kind, as in JSON.
        measured: made by `faithfulness` from the parts that other claims name, not by an analysis itself.
    """

    kind: ClassVar[str]
    measured: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def score(cls, claims: Sequence[Any], truth: Truth) -> list[Item]:
        """The items of this kind that the key has, with how much of each the claims recover.

        Args:
            claims: all claims of this kind in a finding; none if it attempted the kind without success.
            truth: what they are compared with.
        """

    @classmethod
    def count_decoys(cls, claims: Sequence[Any], key: AnswerKey) -> tuple[int, int]:
        """(decoys claimed, decoys that such claims could name), of decoys that only this kind can name."""
        return 0, 0

    def names_decoy(self, decoy: Node, circuit_units: list[int]) -> bool:
        """Whether the claim names a decoy node at its own site.

        Args:
            decoy: the node.
            circuit_units: the circuit's units at that site.
        """
        return False

    def to_json(self) -> dict[str, Any]:
        """The kind, and the fields that differ from their defaults."""
        values = asdict(self)
        return {"kind": self.kind} | {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}


@dataclass(frozen=True)
class SiteClaim(Claim):
    """One statement about one site of one agent. Each node of the circuit that the kind is scored on has its own score.

    Attributes:
        agent: agent name.
        site: site name.
    """

    agent: str
    site: str

    @classmethod
    def score(cls: type[S], claims: Sequence[S], truth: Truth) -> list[Item]:
        return [
            Item(cls.kind, describe(node), share)
            for node in truth.key.nodes
            for share in cls.recovered(at_node(claims, node), node, truth)
        ]

    @classmethod
    @abstractmethod
    def recovered(cls, claims: Sequence[Any], node: Node, truth: Truth) -> list[float]:
        """The recovered share of each thing to find at a node; none if the kind is not scored there.

        Args:
            claims: the claims about the node's agent and site.
            node: a node of the circuit.
            truth: what the claims are compared with.
        """


@dataclass(frozen=True)
class DirectionEffect(Claim):
    """How much an output grows for a step along a direction.

    Attributes:
        agent: agent name.
        site: site name.
        direction: `[unit]`.
        output: index of the logit.
        value: logits for one step along `direction`.
    """

    agent: str
    site: str
    direction: tuple[float, ...]
    output: int
    value: float


CLAIMS: dict[str, type[Claim]] = {}


def claim_kind(name: str) -> Callable[[C], C]:
    """A class decorator that registers a kind of claim and sets its `kind`."""

    def register(kind: C) -> C:
        kind.kind = name
        CLAIMS[name] = kind
        return kind

    return register


def claim_from_json(data: Mapping[str, Any]) -> Claim:
    """The claim that `to_json` wrote.

    Raises:
        AnalysisError: an unknown kind or field, or a missing field.
    """
    if not isinstance(data, Mapping):
        raise AnalysisError(f"expected a claim with its fields, got {data!r}")
    name = str(data.get("kind"))
    if name not in CLAIMS:
        raise AnalysisError(unknown("kind of claim", name, CLAIMS))
    options = {key: as_tuples(value) for key, value in data.items() if key != "kind"}
    valid: dict[str, Field[Any]] = {field.name: field for field in fields(CLAIMS[name])}
    for key in options:
        if key not in valid:
            raise AnalysisError(unknown(f"field of a claim of kind {name!r}", key, valid))
    missing = [key for key, field in valid.items() if field.default is MISSING and key not in options]
    if missing:
        raise AnalysisError(f"a claim of kind {name!r} needs {', '.join(valid)}; missing: {', '.join(missing)}")
    return CLAIMS[name](**options)


def at_node(members: Sequence[HasSite], node: Node) -> list[HasSite]:
    """The claims or nodes of the node's agent and site."""
    where = (node.agent, node.site)
    return [member for member in members if (getattr(member, "agent", ""), getattr(member, "site", "")) == where]


def describe(node: Node) -> str:
    return f"{node.agent}: {node.site}"


def describe_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{agent}: {site}" for agent, site in sorted(pairs))


def jaccard(claimed: set[Any], true: set[Any]) -> float:
    """|claimed & true| / |claimed | true|; 1 if both are empty."""
    return len(claimed & true) / len(claimed | true) if claimed | true else 1.0


def orthonormal_basis(rows: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
    """`[dimension, unit]`, orthonormal, with the span of the rows; rows that coincide count once, zeros not at all."""
    matrix = np.array(rows, dtype=float)
    if not matrix.size:
        return np.zeros((0, 0))
    _, sizes, basis = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(basis[sizes > max(1e-6 * sizes[0], 1e-12)])


def largest_share_in(decoy: Node, basis: np.ndarray) -> float:
    """Of the directions in the span of an orthonormal basis `[dimension, unit]`, the largest share in a decoy."""
    if not len(basis):
        return 0.0
    inside = np.array(decoy.basis) @ basis.T if decoy.basis else basis[:, list(decoy.units)]
    return float(np.linalg.svd(inside, compute_uv=False)[0] ** 2)


def share_right(right: Iterable[bool]) -> float:
    """The share of claims that are right; 0 without claims."""
    return float(np.mean(list(right) or [False]))


def within_tolerance(value: float, expected: float, largest: float) -> bool:
    """Whether an effect is right.

    Args:
        largest: size of the largest effect that the value could have had.
    """
    return bool(abs(value - expected) <= max(EFFECT_TOLERANCE * abs(expected), ZERO_TOLERANCE * largest))


def largest_effect(direction: Sequence[float], readout: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Logits for a step of the direction's length along the weights of the output that grows most."""
    return float(np.linalg.norm(direction)) * max((float(np.linalg.norm(weights)) for _, weights in readout), default=0)


def readout_effect(direction: Sequence[float], units: Sequence[int], weights: Sequence[float]) -> float:
    """Logits for a step along a direction `[unit of the site]`, of a readout's weights `[unit of units]`."""
    return float(np.array(direction)[list(units)] @ np.array(weights))
