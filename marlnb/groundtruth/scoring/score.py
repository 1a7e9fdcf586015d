"""score: a finding beside the answer key. What was recovered, by kind of claim, and what was found where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.errors import AnalysisError
from marlnb.groundtruth.answer_key import AnswerKey, Node
from marlnb.groundtruth.permuted_checkpoint import stays
from marlnb.groundtruth.scoring.claims import Claim, Finding
from marlnb.groundtruth.scoring.false_discoveries import DECOY_OVERLAP, at, decoys_claimed, planted_weights, strays

EFFECT_TOLERANCE = 0.1
"""Largest relative error of an effect that counts as recovered."""

Onsets = Mapping[int, int]


@dataclass(frozen=True)
class Item:
    """One thing that was to be found: `recovered` in 0..1, and in words what it was."""

    kind: str
    what: str
    recovered: float


@dataclass(frozen=True)
class Score:
    """How a finding stands to the key.

    Attributes:
        items: everything that the finding attempted and the key holds, but for
        abstained: what it declined to say, and the key holds.
        decoys_claimed, decoys: decoys that were claimed, of those that lie where the finding made claims.
        strays: share of claimed units that belong neither to the circuit nor to a decoy; None without units claimed.
    """

    finding: Finding
    items: tuple[Item, ...]
    decoys_claimed: int
    decoys: int
    strays: float | None
    abstained: tuple[Item, ...] = ()

    @property
    def recovered(self) -> float:
        """Mean over the items; NaN where there was nothing to find by what was attempted."""
        return float(np.mean([item.recovered for item in self.items])) if self.items else float("nan")

    @property
    def recovered_of_all(self) -> float:
        """The same with everything that was declined as missed."""
        everything = [item.recovered for item in (*self.items, *self.abstained)]
        return float(np.mean(everything)) if everything else float("nan")

    @property
    def false_discovery_rate(self) -> float:
        """Share of decoys claimed; NaN where no claim was made near one."""
        return self.decoys_claimed / self.decoys if self.decoys else float("nan")

    def by_kind(self) -> dict[str, float]:
        kinds = dict.fromkeys(item.kind for item in self.items)
        return {kind: float(np.mean([i.recovered for i in self.items if i.kind == kind])) for kind in kinds}

    def table(self) -> pd.DataFrame:
        """One line an item."""
        return pd.DataFrame([asdict(item) for item in self.items], columns=["kind", "what", "recovered"])

    def to_json(self) -> dict[str, Any]:
        f = self.finding
        return {
            "analysis": f.analysis,
            "circuit": f.circuit,
            "network": f.network,
            "shared": f.shared,
            "seed": f.seed,
            "recovered": self.recovered,
            "by_kind": self.by_kind(),
            "decoys_claimed": self.decoys_claimed,
            "decoys": self.decoys,
            "strays": self.strays,
            "items": [asdict(item) for item in self.items],
            "abstained": [asdict(item) for item in self.abstained],
            "doubts": list(f.doubts),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Score:
        """What `to_json` wrote; of the finding only what names it."""
        names = ("analysis", "circuit", "network", "shared", "seed")
        instance = {name: data[name] for name in names}
        finding = Finding(**instance, attempts=(), claims=(), doubts=tuple(data.get("doubts", ())))
        items, abstained = (tuple(Item(**item) for item in data.get(name, ())) for name in ("items", "abstained"))
        return Score(finding, items, data["decoys_claimed"], data["decoys"], data["strays"], abstained)


def score(finding: Finding, key: AnswerKey, *, onsets: Onsets | None = None) -> Score:
    """Scores every kind of claim that the finding attempted.

    agents, sites, influence, alike: what both name over what either names. units: the same, of each circuit node.
    holds: the share of each node's units (or 1 for its site) among what was claimed.
    subspace: mean squared cosine of the principal angles, over the larger of the two dimensions. effect: 1 if within a
    tenth of the key's, for every output and unit (or any direction within a subspace) that the key has one for.
    features: squared cosine of the nearest feature with each driven direction, leaving decoys' units out. span: how
    much of each driven direction lies in the span of the features named, beyond what would lie in a random one of as
    many dimensions. moves: share of the steps claimed whose effect is the key's, within a tenth.
    onset: share of episodes whose step is right. code: share of goals whose word is right. shares: 1
    for each agent of a team whose weight is right within a tenth. complete, necessary: the
    share of variance kept, and that taken away. What the finding abstains from is no item, and is listed apart.

    Args:
        onsets: the true step of each episode of the recording that was analysed (`onset_steps`), for onset claims.
    Raises:
        AnalysisError: the finding is of another instance, or claims onsets and none are given to compare with.
    """
    mine = (finding.circuit, finding.network, finding.shared, finding.seed)
    theirs = (key.name, key.network, key.shared, key.seed)
    if mine != theirs:
        raise AnalysisError(f"the finding is of the instance {mine}, the key of {theirs}")
    items: list[Item] = []
    abstained: list[Item] = []
    for kind in finding.attempts:
        found = _onsets(finding, key, onsets) if kind == "onset" else _SCORERS[kind](finding, key)
        (abstained if kind in finding.abstains else items).extend(found)
    claimed, near = decoys_claimed(finding, key)
    return Score(finding, tuple(items), claimed, near, strays(finding, key), tuple(abstained))


def _agents(finding: Finding, key: AnswerKey) -> list[Item]:
    found = {agent for claim in finding.of("agents") for agent in claim.agents}
    return [Item("agents", ", ".join(key.agents), _overlap(found, set(key.agents)))]


def _sites(finding: Finding, key: AnswerKey) -> list[Item]:
    found = {pair for claim in finding.of("sites") for pair in claim.sites}
    return [Item("sites", ", ".join(f"{a}: {s}" for a, s in sorted(key.carriers)), _overlap(found, set(key.carriers)))]


def _influence(finding: Finding, key: AnswerKey) -> list[Item]:
    found = {pair for claim in finding.of("influence") for pair in claim.pairs}
    what = ", ".join(f"{a} -> {b}" for a, b in key.influences) or "none"
    return [Item("influence", what, _overlap(found, set(key.influences)))]


def _alike(finding: Finding, key: AnswerKey) -> list[Item]:
    asked = stays(key)
    found = {pair for claim in finding.of("alike") for pair in claim.sites if pair in asked}
    same = {place for place, kept in asked.items() if kept}
    what = ", ".join(f"{a}: {s}" for a, s in sorted(same)) or "none"
    return [Item("alike", what, _overlap(found, same))]


def _units(finding: Finding, key: AnswerKey) -> list[Item]:
    items = []
    for node in key.nodes:
        if node.exact:
            found = {unit for claim in at(finding.of("units"), node) for unit in claim.units}
            items.append(Item("units", _where(node), _overlap(found, set(node.units))))
    return items


def _subspaces(finding: Finding, key: AnswerKey) -> list[Item]:
    items = []
    for node in key.nodes:
        if node.exact and node.basis:
            found = [np.array(claim.basis) for claim in at(finding.of("subspace"), node)]
            best = max((principal_overlap(basis, np.array(node.basis)) for basis in found), default=0.0)
            items.append(Item("subspace", _where(node), best))
    return items


def _holds(finding: Finding, key: AnswerKey) -> list[Item]:
    """Recall alone: random features may hold the concept as well, and it is no error to say so."""
    items = []
    for node in key.nodes:
        if node.exact:
            here = [claim for claim in at(finding.of("holds"), node) if not claim.concept]
            named = {unit for claim in here for unit in claim.units or node.units}
            items.append(Item("holds", _where(node), len(named & set(node.units)) / len(node.units)))
    return items


def _features(finding: Finding, key: AnswerKey) -> list[Item]:
    """By driven direction, the squared cosine with the feature next to it, among the units that are no decoy's: units
    that always do the same cannot be told apart by what they encode."""
    items = []
    for node in key.nodes:
        if node.readout:
            mute = [unit for decoy in at(list(key.decoys), node) if not decoy.basis for unit in decoy.units]
            found = [np.array(claim.basis[0]) for claim in at(finding.of("features"), node)]
            for direction in _driven(node):
                best = max((_cosine(feature, direction, mute) ** 2 for feature in found), default=0.0)
                items.append(Item("features", _where(node), best))
    return items


def _span(finding: Finding, key: AnswerKey) -> list[Item]:
    """By driven direction, its part within the span, decoys' units left out: (part - r / n) / (1 - r / n) for r of n
    dimensions, so that a span of everything says nothing."""
    items = []
    for node in key.nodes:
        if not node.readout:
            continue
        mute = [unit for decoy in at(list(key.decoys), node) if not decoy.basis for unit in decoy.units]
        (rows,) = [np.array(claim.basis) for claim in at(finding.of("span"), node)] or [np.zeros((0, 0))]
        for direction in _driven(node):
            items.append(Item("span", _where(node), _within_span(rows, direction, mute) if rows.size else 0.0))
    return items


def _within_span(rows: np.ndarray, direction: np.ndarray, mute: list[int]) -> float:
    heard = np.delete(rows, mute, axis=1)
    wanted = np.delete(np.pad(direction, (0, rows.shape[1] - len(direction))), mute)
    _, sizes, basis = np.linalg.svd(heard, full_matrices=False)
    basis = basis[sizes > 1e-6 * sizes[0]]
    chance = len(basis) / len(wanted)
    part = float(np.square(basis @ wanted).sum() / np.square(wanted).sum())
    return max(0.0, (part - chance) / (1 - chance)) if chance < 1 else 0.0


def _move_items(finding: Finding, key: AnswerKey) -> list[Item]:
    items = []
    for node in key.nodes:
        if node.readout:
            right = [_as_read(claim, key) for claim in at(finding.of("moves"), node)]
            items.append(Item("moves", _where(node), float(np.mean(right)) if right else 0.0))
    return items


def _as_read(claim: Claim, key: AnswerKey) -> bool:
    """Whether the output grows as all the readouts at the place say, to EFFECT_TOLERANCE."""
    expected = 0.0
    for node in (*key.nodes, *key.minor):
        if (node.agent, node.site) == (claim.agent, claim.site):
            weights = dict(node.readout).get(claim.output, (0.0,) * len(node.units))
            expected += float(np.array(claim.direction)[list(node.units)] @ np.array(weights))
    return abs(claim.value - expected) <= EFFECT_TOLERANCE * abs(expected)


def _driven(node: Node) -> list[np.ndarray]:
    """`[unit of the site]`, length 1: each unit, or where no single unit holds it what is written for each output, or
    the direction that drives it."""
    if node.written:
        return [np.array(direction) for direction in node.written]
    if not node.basis:
        return [np.eye(max(node.units) + 1)[unit] for unit in node.units]
    found = []
    for _, weights in node.readout:
        direction = np.zeros(len(node.basis[0]))
        direction[list(node.units)] = weights
        found.append(direction / np.linalg.norm(direction))
    return found


def _cosine(feature: np.ndarray, direction: np.ndarray, mute: list[int]) -> float:
    heard = feature.copy()
    heard[mute] = 0.0
    size = float(np.linalg.norm(heard))
    return float(heard[: len(direction)] @ direction) / size if size > 0 else 0.0


def _effects(finding: Finding, key: AnswerKey) -> list[Item]:
    items = []
    for node in key.nodes:
        claims = at(finding.of("effect"), node)
        for output, weights in node.readout:
            here = [claim for claim in claims if claim.output == output]
            what = f"{_where(node)} -> logit {output}"
            if node.basis:
                items.append(Item("effect", what, _subspace_effect(here, node, weights)))
                continue
            for unit, weight in zip(node.units, weights):
                if weight:
                    right = any(_is_unit(claim, unit) and _within(claim, node, weights) for claim in here)
                    items.append(Item("effect", f"{what}, unit {unit}", float(right)))
    return items


def _subspace_effect(claims: list[Claim], node: Node, weights: tuple[float, ...]) -> float:
    """Whether a direction was named that lies in the subspace, with its effect."""
    basis = np.array(node.basis)
    for claim in claims:
        direction = np.array(claim.direction) / max(float(np.linalg.norm(claim.direction)), 1e-12)
        if np.linalg.norm(basis @ direction) ** 2 >= 1 - DECOY_OVERLAP and _within(claim, node, weights):
            return 1.0
    return 0.0


def _within(claim: Claim, node: Node, weights: tuple[float, ...]) -> bool:
    """Whether the claimed logits are those of the key for this direction, to EFFECT_TOLERANCE."""
    expected = float(np.array(claim.direction)[list(node.units)] @ np.array(weights))
    return abs(claim.value - expected) <= EFFECT_TOLERANCE * abs(expected)


def _onsets(finding: Finding, key: AnswerKey, onsets: Onsets | None) -> list[Item]:
    if not key.onset:
        return []
    if onsets is None:
        raise AnalysisError("onset claims are scored against the recording's own steps: pass onsets=onset_steps(...)")
    items = []
    for node in key.nodes:
        if node.readout:
            found = {episode: step for claim in at(finding.of("onset"), node) for episode, step in claim.steps}
            right = [found.get(episode) == step for episode, step in onsets.items()]
            items.append(Item("onset", _where(node), float(np.mean(right))))
    return items


def _code(finding: Finding, key: AnswerKey) -> list[Item]:
    if not key.code:
        return []
    found = next((claim.code for claim in finding.of("code")), ())
    right = [word == found[goal] if goal < len(found) else False for goal, word in enumerate(key.code)]
    return [Item("code", f"words {key.code} for goals 0, 1, 2", float(np.mean(right)))]


def _shares(finding: Finding, key: AnswerKey) -> list[Item]:
    found = {claim.agent: claim.value for claim in finding.of("shares")}
    return [
        Item("shares", f"{agent}: {weight:g}", float(abs(found.get(agent, 0) - weight) <= EFFECT_TOLERANCE * weight))
        for agent, weight in planted_weights(key).items()
        if weight
    ]


def _kept(finding: Finding, key: AnswerKey) -> list[Item]:
    kept = {claim.agent: claim.value for claim in finding.of("complete")}
    return [Item("complete", agent, float(np.clip(kept.get(agent, 0), 0, 1))) for agent in key.agents]


def _removed(finding: Finding, key: AnswerKey) -> list[Item]:
    removed = {claim.agent: claim.value for claim in finding.of("necessary")}
    return [Item("necessary", agent, float(np.clip(1 - removed.get(agent, 1), 0, 1))) for agent in key.agents]


_SCORERS: dict[str, Callable[[Finding, AnswerKey], list[Item]]] = {
    "agents": _agents,
    "sites": _sites,
    "units": _units,
    "subspace": _subspaces,
    "holds": _holds,
    "effect": _effects,
    "features": _features,
    "span": _span,
    "moves": _move_items,
    "code": _code,
    "influence": _influence,
    "alike": _alike,
    "shares": _shares,
    "complete": _kept,
    "necessary": _removed,
}


def principal_overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Mean squared cosine of the principal angles between the row spaces of `[dimension, unit]`, over the larger
    dimension: 1 for the same space, 0 for orthogonal ones, 1/2 where one of two dimensions was found."""
    if not first.size or not second.size:
        return 0.0
    a, b = (np.linalg.qr(basis.T)[0] for basis in (first, second))
    cosines = np.linalg.svd(a.T @ b, compute_uv=False)
    return float((cosines**2).sum() / max(a.shape[1], b.shape[1]))


def _is_unit(claim: Claim, unit: int) -> bool:
    direction = np.array(claim.direction)
    return unit < len(direction) and direction[unit] != 0 and np.count_nonzero(direction) == 1


def _overlap(found: set[Any], true: set[Any]) -> float:
    """What both name over what either names; 1 where both are empty."""
    return len(found & true) / len(found | true) if found | true else 1.0


def _where(node: Node) -> str:
    return f"{node.agent}: {node.site}"
