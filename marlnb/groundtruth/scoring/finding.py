"""Finding: everything that one analysis claims about one instance, in a form that any tool can write as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from marlnb.errors import AnalysisError, unknown
from marlnb.groundtruth.answer_key import as_tuples

# imported for their registration: findings are read from JSON by kind
from marlnb.groundtruth.scoring import circuit_claims as circuit_claims
from marlnb.groundtruth.scoring import feature_claims as feature_claims
from marlnb.groundtruth.scoring.claims import CLAIMS, Claim, claim_from_json

TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("analysis", "circuit", "network"), (str,)),
    **dict.fromkeys(("attempts", "claims", "abstains", "doubts"), (list, tuple)),
    "shared": (bool,),
    "seed": (int,),
}
"""Types of the fields in JSON."""

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
        claims: the claims, each of a kind that the analysis attempts.
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
        if len(set(self.attempts)) < len(self.attempts):
            raise AnalysisError(f"the finding attempts a kind of claim twice: {', '.join(self.attempts)}")
        for claim in self.claims:
            if claim.kind not in self.attempts:
                raise AnalysisError(f"the finding has a claim of kind {claim.kind!r}, which is not in its attempts")
        allowed = (*self.attempts, *(name for name, kind in CLAIMS.items() if kind.measured))
        for kind in self.abstains:
            if kind not in allowed:
                raise AnalysisError(unknown("attempted kind of claim to abstain from", kind, allowed))
            if claims := self.of(CLAIMS[kind]):
                raise AnalysisError(f"the finding abstains from {kind!r} and has {len(claims)} such claims")

    @property
    def instance(self) -> str:
        """The instance's name, which is its folder's."""
        return f"{self.circuit}-{self.network}-{'shared' if self.shared else 'unshared'}-{self.seed}"

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
            AnalysisError: an unknown field or kind of claim, a missing field, or a value of another type.
        """
        if not isinstance(data, Mapping):
            raise AnalysisError(f"expected a finding with its fields, got {data!r}")
        valid = [field.name for field in fields(Finding)]
        for name in data:
            if name not in valid:
                raise AnalysisError(unknown("field of a finding", name, valid))
        required = [name for name in valid if name not in ("abstains", "doubts")]
        missing = sorted(set(required) - set(data))
        if missing:
            raise AnalysisError(f"a finding needs {', '.join(required)}; missing: {', '.join(missing)}")
        for name, value in data.items():
            if not isinstance(value, TYPES[name]) or (name == "seed" and isinstance(value, bool)):
                raise AnalysisError(f"{name} of a finding: expected {TYPES[name][0].__name__}, got {value!r}")
        claims = tuple(claim_from_json(claim) for claim in data["claims"])
        options = {name: as_tuples(value) for name, value in data.items() if name != "claims"}
        return Finding(**options, claims=claims)


def check_unique(findings: Iterable[Finding], what: str) -> None:
    """Raises AnalysisError if an analysis has several findings about one instance.

    Args:
        what: they are, for the message: `finding` or `score`.
    """
    for name, n in Counter(f"{finding.analysis} of {finding.instance}" for finding in findings).items():
        if n > 1:
            raise AnalysisError(f"expected one {what} for each analysis and instance, got {n} for {name}")
