"""Finding: everything that one analysis claims about one instance, in a form that any tool can write as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from marlnb.errors import AnalysisError, unknown
from marlnb.groundtruth.answer_key import as_tuples

# imported for their registration: findings are read from JSON by kind
from marlnb.groundtruth.scoring import circuit_claims as circuit_claims
from marlnb.groundtruth.scoring import feature_claims as feature_claims
from marlnb.groundtruth.scoring.claims import CLAIMS, Claim, claim_from_json

OneClaim = TypeVar("OneClaim", bound=Claim)


@dataclass(frozen=True)
class Finding:
    """What one analysis claims about one instance.

    Attributes:
        analysis: name of the analysis.
        circuit: name of the instance's circuit.
        network: the instance's network.
        shared: whether its agents share weights.
        seed: its seed.
        attempts: the kinds of claim that the analysis tried to make. An attempt without a claim counts as missed.
        claims: the claims.
        abstains: attempted kinds that it declines here, since their assumptions do not hold. They are counted apart.
        doubts: the reasons, in words.
    """

    analysis: str
    circuit: str
    network: str
    shared: bool
    seed: int
    attempts: tuple[str, ...]
    claims: tuple[Claim, ...]
    abstains: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.attempts:
            if kind not in CLAIMS:
                raise AnalysisError(unknown("kind of claim", kind, CLAIMS))
        allowed = (*self.attempts, *(name for name, kind in CLAIMS.items() if kind.measured))
        for kind in self.abstains:
            if kind not in allowed:
                raise AnalysisError(unknown("attempted kind of claim to abstain from", kind, allowed))
            if claims := self.of(CLAIMS[kind]):
                raise AnalysisError(f"the finding abstains from {kind!r} and has {len(claims)} such claims")

    def of(self, kind: type[OneClaim]) -> list[OneClaim]:
        """The claims of one kind."""
        return [claim for claim in self.claims if isinstance(claim, kind)]

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "claims"}
        return {**plain, "claims": [claim.to_json() for claim in self.claims]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        """The finding that `to_json` wrote.

        Raises:
            AnalysisError: an unknown field or kind of claim, or a missing field.
        """
        valid = [field.name for field in fields(Finding)]
        for name in data:
            if name not in valid:
                raise AnalysisError(unknown("field of a finding", name, valid))
        required = [name for name in valid if name not in ("abstains", "doubts")]
        missing = sorted(set(required) - set(data))
        if missing:
            raise AnalysisError(f"a finding needs {', '.join(required)}; missing: {', '.join(missing)}")
        claims = tuple(claim_from_json(claim) for claim in data["claims"])
        options = {name: as_tuples(value) for name, value in data.items() if name != "claims"}
        return Finding(**options, claims=claims)
