"""Kinds of claim about a circuit: its agents, sites, units, subspaces, effects, timing and faithfulness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np

from marlnb.errors import AnalysisError
from marlnb.groundtruth.answer_key import AnswerKey, Node
from marlnb.groundtruth.permuted_checkpoint import unchanged_units
from marlnb.groundtruth.planted_mixer import mixing_weights
from marlnb.groundtruth.scoring.claims import (
    DECOY_OVERLAP,
    NONSENSE,
    Claim,
    DirectionEffect,
    Item,
    SiteClaim,
    Truth,
    at_node,
    claim_kind,
    describe,
    describe_pairs,
    jaccard,
    largest_effect,
    largest_share_in,
    orthonormal_basis,
    readout_effect,
    share_right,
    within_tolerance,
)


@claim_kind("agents")
@dataclass(frozen=True)
class AgentsClaim(Claim):
    """The agents that use the concept. Score: Jaccard index with the key's.

    Attributes:
        agents: their names.
    """

    agents: tuple[str, ...]

    @classmethod
    def score(cls, claims: Sequence[AgentsClaim], truth: Truth) -> list[Item]:
        agents = truth.key.agents
        return [Item(cls.kind, ", ".join(agents), jaccard({a for claim in claims for a in claim.agents}, set(agents)))]

    @classmethod
    def count_decoys(cls, claims: Sequence[AgentsClaim], key: AnswerKey) -> tuple[int, int]:
        """Decoys: agents that represent the concept and do not use it."""
        idle = {node.agent for node in key.decoys} - set(key.agents)
        return len(idle & {agent for claim in claims for agent in claim.agents}), len(idle)


@claim_kind("sites")
@dataclass(frozen=True)
class SitesClaim(Claim):
    """The (agent, site) pairs that carry the concept. Score: Jaccard index with the key's.

    Attributes:
        sites: (agent, site) pairs.
    """

    sites: tuple[tuple[str, str], ...]

    @classmethod
    def score(cls, claims: Sequence[SitesClaim], truth: Truth) -> list[Item]:
        carriers = set(truth.key.carriers)
        claimed = {pair for claim in claims for pair in claim.sites}
        return [Item(cls.kind, describe_pairs(carriers), jaccard(claimed, carriers))]


@claim_kind("units")
@dataclass(frozen=True)
class UnitsClaim(SiteClaim):
    """The units that carry the concept. Score: Jaccard index with each exact node's units.

    Attributes:
        agent: agent name.
        site: site name.
        units: unit indices.
    """

    units: tuple[int, ...]

    @classmethod
    def recovered(cls, claims: Sequence[UnitsClaim], node: Node, truth: Truth) -> list[float]:
        return [jaccard({unit for claim in claims for unit in claim.units}, set(node.units))] if node.exact else []

    def names_decoy(self, decoy: Node, circuit_units: list[int]) -> bool:
        return bool(set(self.units) & set(decoy.units))


@claim_kind("subspace")
@dataclass(frozen=True)
class SubspaceClaim(SiteClaim):
    """The subspace that carries the concept. Score: mean squared cosine of the principal angles with the key's.

    Attributes:
        agent: agent name.
        site: site name.
        basis: `[dimension][unit]`.
    """

    basis: tuple[tuple[float, ...], ...]

    @classmethod
    def recovered(cls, claims: Sequence[SubspaceClaim], node: Node, truth: Truth) -> list[float]:
        if not (node.exact and node.basis):
            return []
        overlaps = (principal_overlap(np.array(claim.basis), np.array(node.basis)) for claim in claims)
        return [max(overlaps, default=0.0)]

    def names_decoy(self, decoy: Node, circuit_units: list[int]) -> bool:
        """Whether some direction in the subspace lies in the decoy by more than DECOY_OVERLAP."""
        return largest_share_in(decoy, orthonormal_basis(self.basis)) > DECOY_OVERLAP


@claim_kind("represents")
@dataclass(frozen=True)
class RepresentsClaim(SiteClaim):
    """Where the concept can be read from, used or not.

    Score: recall alone, the share of each exact node's units (or 1 for its site). Random features may represent the
    concept as well, and claiming them is no error.

    Attributes:
        agent: agent name.
        site: site name.
        units: unit indices, if the units were tested one by one.
        concept: NONSENSE if random labels could be read; empty for the concept of the question.
    """

    units: tuple[int, ...] = ()
    concept: str = ""

    @classmethod
    def recovered(cls, claims: Sequence[RepresentsClaim], node: Node, truth: Truth) -> list[float]:
        units = {unit for claim in claims if not claim.concept for unit in claim.units or node.units}
        return [len(units & set(node.units)) / len(node.units)] if node.exact else []

    @classmethod
    def count_decoys(cls, claims: Sequence[RepresentsClaim], key: AnswerKey) -> tuple[int, int]:
        """The decoy is a nonsense label, once for each agent of the key."""
        everyone = {node.agent for node in (*key.nodes, *key.decoys)}
        return len(everyone & {claim.agent for claim in claims if claim.concept == NONSENSE}), len(everyone)


@claim_kind("effect")
@dataclass(frozen=True)
class EffectClaim(DirectionEffect):
    """How much an output grows when the activations move along a direction.

    Score, for every output and unit (or subspace) that the key has an effect for: the share of the claims about it (of
    directions within the subspace) that are right within EFFECT_TOLERANCE; 0 without a claim.
    """

    @classmethod
    def score(cls, claims: Sequence[EffectClaim], truth: Truth) -> list[Item]:
        items = []
        for node in truth.key.nodes:
            for output, weights in node.readout:
                on_output = [claim for claim in at_node(claims, node) if claim.output == output]
                what = f"{describe(node)} -> logit {output}"
                if node.basis:
                    inside = [claim for claim in on_output if claim._lies_in(node)]
                    items.append(Item(cls.kind, what, share_right(claim._matches(node, weights) for claim in inside)))
                    continue
                for unit, weight in zip(node.units, weights):
                    if weight:
                        right = [claim._matches(node, weights) for claim in on_output if claim._is_unit(unit)]
                        items.append(Item(cls.kind, f"{what}, unit {unit}", share_right(right)))
        return items

    def _is_unit(self, unit: int) -> bool:
        direction = np.array(self.direction)
        return unit < len(direction) and direction[unit] != 0 and np.count_nonzero(direction) == 1

    def _lies_in(self, node: Node) -> bool:
        direction = np.array(self.direction) / max(float(np.linalg.norm(self.direction)), 1e-12)
        return bool(np.linalg.norm(np.array(node.basis) @ direction) ** 2 >= 1 - DECOY_OVERLAP)

    def _matches(self, node: Node, weights: Sequence[float]) -> bool:
        expected = readout_effect(self.direction, node.units, weights)
        return within_tolerance(self.value, expected, largest_effect(self.direction, node.readout))


@claim_kind("onset")
@dataclass(frozen=True)
class OnsetClaim(SiteClaim):
    """From which step of each episode a memory holds the concept. Score: share of episodes with the exact step.

    Attributes:
        agent: agent name.
        site: site name.
        steps: (episode, step) pairs.
    """

    steps: tuple[tuple[int, int], ...]

    @classmethod
    def recovered(cls, claims: Sequence[OnsetClaim], node: Node, truth: Truth) -> list[float]:
        if not (truth.key.onset and node.readout):
            return []
        if truth.onsets is None:
            raise AnalysisError("onset claims are compared with the recording's steps: pass onsets=onset_steps(...)")
        claimed = {episode: step for claim in claims for episode, step in claim.steps}
        return [float(np.mean([claimed.get(episode) == step for episode, step in truth.onsets.items()]))]


@claim_kind("code")
@dataclass(frozen=True)
class CodeClaim(Claim):
    """The speaker's code. Score: share of goals with the right word.

    Attributes:
        code: the word for each goal.
    """

    code: tuple[int, ...]

    @classmethod
    def score(cls, claims: Sequence[CodeClaim], truth: Truth) -> list[Item]:
        true = truth.key.code
        if not true:
            return []
        code = next((claim.code for claim in claims), ())
        right = [word == code[goal] if goal < len(code) else False for goal, word in enumerate(true)]
        return [Item(cls.kind, f"words {true} for goals 0, 1, 2", float(np.mean(right)))]


@claim_kind("influence")
@dataclass(frozen=True)
class InfluenceClaim(Claim):
    """Which agent drives which other. Score: Jaccard index with the key's, if it has any.

    Attributes:
        pairs: (cause, effect) pairs of agents.
    """

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def score(cls, claims: Sequence[InfluenceClaim], truth: Truth) -> list[Item]:
        influences = truth.key.influences
        if not influences:
            return []
        what = ", ".join(f"{cause} -> {effect}" for cause, effect in influences)
        return [Item(cls.kind, what, jaccard({pair for claim in claims for pair in claim.pairs}, set(influences)))]

    @classmethod
    def count_decoys(cls, claims: Sequence[InfluenceClaim], key: AnswerKey) -> tuple[int, int]:
        """Where no agent drives another, every pair of agents is a decoy."""
        pairs = set() if key.influences else set(permutations({node.agent for node in (*key.nodes, *key.decoys)}, 2))
        return len(pairs & {pair for claim in claims for pair in claim.pairs}), len(pairs)


@claim_kind("similar")
@dataclass(frozen=True)
class SimilarClaim(Claim):
    """Where a later checkpoint represents what it did (`permuted_checkpoint`), if anywhere. Score: Jaccard index.

    Attributes:
        sites: (agent, site) pairs.
    """

    sites: tuple[tuple[str, str], ...]

    @classmethod
    def score(cls, claims: Sequence[SimilarClaim], truth: Truth) -> list[Item]:
        unchanged = unchanged_units(truth.key)
        claimed = {pair for claim in claims for pair in claim.sites if pair in unchanged}
        same = {pair for pair, is_same in unchanged.items() if is_same}
        return [Item(cls.kind, describe_pairs(same), jaccard(claimed, same))] if same else []

    @classmethod
    def count_decoys(cls, claims: Sequence[SimilarClaim], key: AnswerKey) -> tuple[int, int]:
        """Decoys: sites whose random features were drawn again."""
        redrawn = {pair for pair, is_same in unchanged_units(key).items() if not is_same}
        return len(redrawn & {pair for claim in claims for pair in claim.sites}), len(redrawn)


@claim_kind("value_weight")
@dataclass(frozen=True)
class ValueWeightClaim(Claim):
    """How much the team's value grows with an agent's Q, under the planted mixer. Score: 1 within EFFECT_TOLERANCE.

    Attributes:
        agent: agent name.
        value: reward by which the team's value grows for one more of the agent's Q.
    """

    agent: str
    value: float

    @classmethod
    def score(cls, claims: Sequence[ValueWeightClaim], truth: Truth) -> list[Item]:
        claimed, weights = {claim.agent: claim.value for claim in claims}, planted_weights(truth.key)
        largest = max(weights.values(), default=0.0)
        return [
            Item(cls.kind, f"{agent}: {weight:g}", float(within_tolerance(claimed.get(agent, 0), weight, largest)))
            for agent, weight in weights.items()
            if weight
        ]

    @classmethod
    def count_decoys(cls, claims: Sequence[ValueWeightClaim], key: AnswerKey) -> tuple[int, int]:
        """The decoy is the agent whose weight is zero, claimed to have another."""
        weights = planted_weights(key)
        largest = max(weights.values(), default=0.0)
        idle = {agent for agent, weight in weights.items() if not weight}
        named = {claim.agent for claim in claims if not within_tolerance(claim.value, 0.0, largest)}
        return len(idle & named), len(idle)


@claim_kind("complete")
@dataclass(frozen=True)
class CompleteClaim(Claim):
    """Sufficiency of the claimed parts, measured by `faithfulness`. Score: the share of variance kept.

    Attributes:
        agent: agent name.
        site: site name.
        value: share of the driven logits' variance that remains with the claimed parts alone; NaN if they do not vary,
            which is not scored.
    """

    measured: ClassVar[bool] = True

    agent: str
    value: float
    site: str = ""

    @classmethod
    def score(cls, claims: Sequence[CompleteClaim], truth: Truth) -> list[Item]:
        kept = {claim.agent: claim.value for claim in claims}
        shares = {agent: np.clip(kept.get(agent, 0), 0, 1) for agent in truth.key.agents}
        return [Item(cls.kind, agent, float(share)) for agent, share in shares.items() if not np.isnan(share)]


@claim_kind("necessary")
@dataclass(frozen=True)
class NecessaryClaim(Claim):
    """Necessity of the claimed parts, measured by `faithfulness`. Score: the share of variance removed.

    Attributes:
        agent: agent name.
        site: site name.
        value: share of the driven logits' variance that remains without the claimed parts; NaN if they do not vary,
            which is not scored.
    """

    measured: ClassVar[bool] = True

    agent: str
    value: float
    site: str = ""

    @classmethod
    def score(cls, claims: Sequence[NecessaryClaim], truth: Truth) -> list[Item]:
        remaining = {claim.agent: claim.value for claim in claims}
        shares = {agent: np.clip(1 - remaining.get(agent, 1), 0, 1) for agent in truth.key.agents}
        return [Item(cls.kind, agent, float(share)) for agent, share in shares.items() if not np.isnan(share)]


def principal_overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Mean squared cosine of the principal angles between the row spaces of `[dimension, unit]`:

        sum_i cos(theta_i)^2 / max(dim first, dim second)

    1 for the same space, 0 for orthogonal ones, 1/2 if one of two dimensions was found.
    """
    a, b = orthonormal_basis(first), orthonormal_basis(second)
    if not len(a) or not len(b):
        return 0.0
    cosines = np.linalg.svd(a @ b.T, compute_uv=False)
    return float((cosines**2).sum() / max(len(a), len(b)))


def planted_weights(key: AnswerKey) -> dict[str, float]:
    """Mixing weight by agent of the circuit's team, in the order of their names; empty for groups of one agent."""
    team = sorted({node.agent for node in (*key.nodes, *key.decoys)})
    all_alone = len({agent.rpartition("_")[0] for agent in team}) == len(team)
    return {} if all_alone else mixing_weights(tuple(team), key.name, key.seed)
