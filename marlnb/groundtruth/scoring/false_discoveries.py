"""Discoveries of what is not there: decoys that a finding claims, and units of random features."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from marlnb.groundtruth.answer_key import AnswerKey, Node
from marlnb.groundtruth.permuted_checkpoint import stays
from marlnb.groundtruth.planted_mixer import mixing_weights
from marlnb.groundtruth.scoring.claims import Claim, Finding

Placed = TypeVar("Placed", Claim, Node)

DECOY_OVERLAP = 0.5
"""Share of a claimed direction that lies in a decoy's units from which on the decoy counts as found."""
CIRCUIT_IN_FEATURE = 0.1
"""Share of a feature's direction that lies in the circuit's units from which on it is more than a decoy's."""
NONSENSE = "nonsense"
"""The concept that nobody holds: a random class of each episode."""


def decoys_claimed(finding: Finding, key: AnswerKey) -> tuple[int, int]:
    """Decoys claimed, of those that claims could have named: agents that only hold, and nodes at attempted units; none
    of a kind that the finding abstains from.

    Agents that hold a decoy and use nothing are counted where agents are attempted; where it was claimed from what the
    concept can be read, labels that are nonsense are the decoy, once for each agent of the key; where it was claimed
    what stayed alike, what was drawn anew.
    """
    claimed = near = 0
    made = set(finding.attempts) - set(finding.abstains)
    if "holds" in made:
        fooled = {claim.agent for claim in finding.of("holds") if claim.concept == NONSENSE}
        everyone = {node.agent for node in (*key.nodes, *key.decoys)}
        claimed, near = len(everyone & fooled), len(everyone)
    if "shares" in made:
        idle_in_team = {agent for agent, weight in planted_weights(key).items() if not weight}
        named = {claim.agent for claim in finding.of("shares")}
        claimed, near = claimed + len(idle_in_team & named), near + len(idle_in_team)
    if "alike" in made:
        redrawn = {place for place, kept in stays(key).items() if not kept}
        claimed += len(redrawn & {pair for claim in finding.of("alike") for pair in claim.sites})
        near += len(redrawn)
    if "agents" in made:
        named = {agent for claim in finding.of("agents") for agent in claim.agents}
        idle = {node.agent for node in key.decoys} - set(key.agents)
        claimed, near = claimed + len(idle & named), near + len(idle)
    if {"units", "subspace", "features"} & made:
        for node in key.decoys:
            if "features" in made and node.site not in _fed(key):
                continue  # dictionaries are asked of the layers that feed a head
            if node.basis and not {"subspace", "features"} & made:
                continue  # units do not tell it from what else they hold
            near += 1
            own = [unit for other in at(list(key.nodes), node) for unit in other.units]
            claimed += any(_names(claim, node, own) for claim in at(list(finding.claims), node))
    return claimed, near


def planted_weights(key: AnswerKey) -> dict[str, float]:
    """By agent of the circuit's team, in the order of their names; empty where the circuit is of groups of one."""
    team = sorted({node.agent for node in (*key.nodes, *key.decoys)})
    alone = len({agent.rpartition("_")[0] for agent in team}) == len(team)
    return {} if alone else mixing_weights(tuple(team), key.name, key.seed)


def _fed(key: AnswerKey) -> set[str]:
    """Sites from which the circuit goes to a head."""
    return {node.site for node in key.nodes if node.readout}


def _names(claim: Claim, decoy: Node, own: list[int]) -> bool:
    """Args: own: the circuit's units at that place. A feature that holds some of those too has a cause."""
    if claim.kind == "units":
        return bool(set(claim.units) & set(decoy.units))
    if decoy.basis:
        if claim.kind not in ("subspace", "features"):
            return False
        basis = np.linalg.qr(np.array(claim.basis).T)[0]
        return bool(np.linalg.svd(np.array(decoy.basis) @ basis, compute_uv=False)[0] ** 2 > DECOY_OVERLAP)
    if claim.kind == "subspace":
        inside = np.linalg.qr(np.array(claim.basis).T)[0][list(decoy.units)]
        return bool((np.linalg.svd(inside, compute_uv=False)[0]) ** 2 > DECOY_OVERLAP)
    if claim.kind == "features":
        shares = np.array(claim.basis[0]) ** 2
        return bool(shares[list(decoy.units)].sum() > DECOY_OVERLAP and shares[own].sum() < CIRCUIT_IN_FEATURE)
    return False


def strays(finding: Finding, key: AnswerKey) -> float | None:
    known: dict[tuple[str, str], set[int]] = {}
    for node in (*key.nodes, *key.decoys):
        known.setdefault((node.agent, node.site), set()).update(node.units)
    named = [(claim.agent, claim.site, unit) for claim in finding.of("units") for unit in claim.units]
    if not named:
        return None
    return float(np.mean([unit not in known.get((agent, site), set()) for agent, site, unit in named]))


def at(claims: list[Placed], node: Node) -> list[Placed]:
    """Those of the node's agent and site."""
    return [claim for claim in claims if (claim.agent, claim.site) == (node.agent, node.site)]
