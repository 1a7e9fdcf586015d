"""Claims: what an analysis says it found, in a form that any tool can write as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from marlnb.errors import AnalysisError, unknown

ClaimKind = Literal[
    "agents",
    "sites",
    "units",
    "subspace",
    "holds",
    "effect",
    "onset",
    "code",
    "influence",
    "alike",
    "features",
    "span",
    "moves",
    "shares",
    "complete",
    "necessary",
]
CLAIM_KINDS: tuple[str, ...] = get_args(ClaimKind)
MEASURED_KINDS = ("complete", "necessary")
"""Not attempted by an analysis itself: measured of the parts that it claims, if it does not say that they are not
whole."""


@dataclass(frozen=True)
class Claim:
    """One statement about an instance.

    Attributes:
        kind: agents (`agents`: those that use the concept), sites (`sites`: the (agent, site) at which it is carried),
            units (`agent`, `site`, `units`: those that carry it), subspace (`agent`, `site`, `basis`
            `[dimension][unit]`), holds (`agent`, `site`, `units` where they were told apart: what the concept can be
            read from, used or not; with `concept="nonsense"`, what random labels could be read from), effect (`agent`,
            `site`, `direction` `[unit]`, `output`, `value`: logits by which the output grows when the activations move
            by `direction`), onset (`agent`, `site`, `steps`: (episode, step) from which it holds the concept), code
            (`code`: the word for each goal), influence (`pairs` of agents, the first of which drives the second), alike
            (`sites`: the (agent, site) whose units hold later what they held, see `reworking`), features (`agent`,
            `site`, `basis` of one direction `[unit]`: what a dictionary's feature writes when the concept is there, and
            by which it moves the choices; one claim a feature), span (`agent`, `site`, `basis` of the features named,
            together), moves (`agent`, `site`, `direction` `[unit]`, `output`, `value`: logits by which the output grows
            when a feature that was named adds `direction`),
            shares (`agent`, `value`: reward by which the team's value grows with one more of the agent's Q, under the
            planted mixer);
            complete and necessary (`value`: share of the driven logits' variance that is left with the claimed parts
            alone, and without them; `faithfulness` measures them).
    """

    kind: ClaimKind
    agent: str = ""
    site: str = ""
    concept: str = ""
    agents: tuple[str, ...] = ()
    sites: tuple[tuple[str, str], ...] = ()
    units: tuple[int, ...] = ()
    basis: tuple[tuple[float, ...], ...] = ()
    direction: tuple[float, ...] = ()
    output: int = -1
    value: float = float("nan")
    steps: tuple[tuple[int, int], ...] = ()
    code: tuple[int, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in CLAIM_KINDS:
            raise AnalysisError(unknown("kind of claim", self.kind, CLAIM_KINDS))

    def to_json(self) -> dict[str, Any]:
        """The fields that say something."""
        empty = Claim(self.kind)
        return {
            name: value
            for name, value in asdict(self).items()
            if name == "kind" or (value != getattr(empty, name) and value == value)
        }


@dataclass(frozen=True)
class Finding:
    """What one analysis says about one instance.

    Attributes:
        analysis: its name; circuit, network, shared, seed: the instance.
        attempts: the kinds of claim that it set out to make: one that it attempts and does not make counts as missed.
        abstains: those of them that it declines here, since what they suppose does not hold: they are counted apart.
        doubts: in words, what does not hold.
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
        allowed = (*self.attempts, *MEASURED_KINDS)
        for kind in self.abstains:
            if kind not in allowed:
                raise AnalysisError(unknown("kind of claim attempted, to abstain from", kind, allowed))
            if self.of(kind):
                raise AnalysisError(f"the finding abstains from {kind!r} and has {len(self.of(kind))} such claims")

    def of(self, kind: str) -> list[Claim]:
        return [claim for claim in self.claims if claim.kind == kind]

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "claims"}
        return {**plain, "claims": [claim.to_json() for claim in self.claims]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        """Raises AnalysisError for a field or kind of claim that there is not, or one that is missing."""
        names = [field.name for field in fields(Finding)]
        for name in data:
            if name not in names:
                raise AnalysisError(unknown("field of a finding", name, names))
        needed = [name for name in names if name not in ("abstains", "doubts")]
        missing = sorted(set(needed) - set(data))
        if missing:
            raise AnalysisError(f"a finding needs {', '.join(needed)}; not given: {', '.join(missing)}")
        claims = tuple(_claim(claim) for claim in data["claims"])
        given = {name: _tuples(value) for name, value in data.items() if name != "claims"}
        return Finding(**given, claims=claims)


def _claim(data: Mapping[str, Any]) -> Claim:
    names = [field.name for field in fields(Claim)]
    for name in data:
        if name not in names:
            raise AnalysisError(unknown("field of a claim", name, names))
    return Claim(**{name: _tuples(value) for name, value in data.items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
