"""False discoveries: decoys that a finding claims, and units of random features."""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.scoring.circuit_claims import UnitsClaim
from marlnb.groundtruth.scoring.claims import CLAIMS, at_node
from marlnb.groundtruth.scoring.finding import Finding


def decoys_claimed(finding: Finding, key: AnswerKey) -> tuple[int, int]:
    """(decoys claimed, decoys that the attempted claims could have named).

    Kinds that the finding abstains from do not count. Decoy nodes count once, however many kinds can name them.
    """
    made = set(finding.attempts) - set(finding.abstains)
    claimed = total = 0
    for kind in made:
        named, possible = CLAIMS[kind].count_decoys(finding.of(CLAIMS[kind]), key)
        claimed, total = claimed + named, total + possible
    if not {"units", "subspace", "features"} & made:
        return claimed, total
    readout_sites = {node.site for node in key.nodes if node.readout}
    for decoy in key.decoys:
        if "features" in made and decoy.site not in readout_sites:
            continue  # dictionaries are asked about the layers before a head
        if decoy.basis and not {"subspace", "features"} & made:
            continue  # units alone do not separate it from other content of the same units
        circuit_units = [unit for node in at_node(key.nodes, decoy) for unit in node.units]
        total += 1
        claimed += any(claim.names_decoy(decoy, circuit_units) for claim in at_node(finding.claims, decoy))
    return claimed, total


def stray_share(finding: Finding, key: AnswerKey) -> float | None:
    """Share of the claimed units that belong to neither the circuit nor a decoy; None if no units are claimed."""
    known: dict[tuple[str, str], set[int]] = {}
    for node in (*key.nodes, *key.decoys):
        known.setdefault((node.agent, node.site), set()).update(node.units)
    claimed = [(claim.agent, claim.site, unit) for claim in finding.of(UnitsClaim) for unit in claim.units]
    if not claimed:
        return None
    return float(np.mean([unit not in known.get((agent, site), set()) for agent, site, unit in claimed]))
