"""Discoveries of what is not there: decoys that a finding claims, and units of random features."""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.claims import Claim, Finding
from marlnb.groundtruth.key import AnswerKey, Node
from marlnb.groundtruth.mixing import mixing_weights

DECOY_OVERLAP = 0.5
"""Share of a claimed direction that lies in a decoy's units from which on the decoy counts as found."""
NONSENSE = "nonsense"
"""The concept that nobody holds: a random class of each episode."""


def decoys_claimed(finding: Finding, key: AnswerKey) -> tuple[int, int]:
    """Decoys claimed, of those that claims could have named: agents that only hold, and nodes at attempted units.

    Agents that hold a decoy and use nothing are counted where agents are attempted; where it was claimed from what the
    concept can be read, labels that are nonsense are the decoy, once for each agent of the key.
    """
    claimed = near = 0
    if "holds" in finding.attempts:
        fooled = {claim.agent for claim in finding.of("holds") if claim.concept == NONSENSE}
        everyone = {node.agent for node in (*key.nodes, *key.decoys)}
        claimed, near = len(everyone & fooled), len(everyone)
    if "shares" in finding.attempts:
        idle_in_team = {agent for agent, weight in planted_weights(key).items() if not weight}
        named = {claim.agent for claim in finding.of("shares")}
        claimed, near = claimed + len(idle_in_team & named), near + len(idle_in_team)
    if "agents" in finding.attempts:
        named = {agent for claim in finding.of("agents") for agent in claim.agents}
        idle = {node.agent for node in key.decoys} - set(key.agents)
        claimed, near = claimed + len(idle & named), near + len(idle)
    if {"units", "subspace"} & set(finding.attempts):
        for node in key.decoys:
            near += 1
            claimed += any(_names(claim, node) for claim in at(list(finding.claims), node))
    return claimed, near


def planted_weights(key: AnswerKey) -> dict[str, float]:
    """By agent of the circuit's team, in the order of their names; empty where the circuit is of groups of one."""
    team = sorted({node.agent for node in (*key.nodes, *key.decoys)})
    alone = len({agent.rpartition("_")[0] for agent in team}) == len(team)
    return {} if alone else mixing_weights(tuple(team), key.name, key.seed)


def _names(claim: Claim, decoy: Node) -> bool:
    if claim.kind == "units":
        return bool(set(claim.units) & set(decoy.units))
    if claim.kind == "subspace":
        inside = np.linalg.qr(np.array(claim.basis).T)[0][list(decoy.units)]
        return bool((np.linalg.svd(inside, compute_uv=False)[0]) ** 2 > DECOY_OVERLAP)
    return False


def strays(finding: Finding, key: AnswerKey) -> float | None:
    known: dict[tuple[str, str], set[int]] = {}
    for node in (*key.nodes, *key.decoys):
        known.setdefault((node.agent, node.site), set()).update(node.units)
    named = [(claim.agent, claim.site, unit) for claim in finding.of("units") for unit in claim.units]
    if not named:
        return None
    return float(np.mean([unit not in known.get((agent, site), set()) for agent, site, unit in named]))


def at(claims: list[Claim], node: Node) -> list[Claim]:
    return [claim for claim in claims if (claim.agent, claim.site) == (node.agent, node.site)]
