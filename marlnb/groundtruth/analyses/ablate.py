"""ablate: every hidden unit set to zero by itself; those that move the driven logits carry the circuit."""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.instance import Case, analysis, claims_of_units, largest
from marlnb.groundtruth.scoring.claims import Finding
from marlnb.models.hooks.edits import Ablate


@analysis("ablate")
def ablate(case: Case) -> Finding:
    units: dict[tuple[str, str], tuple[int, ...]] = {}
    for group in case.question.groups:
        moments = case.moments(group)
        whole = case.logits(group, moments, [])
        for site in case.hidden_sites(group):
            change = np.stack(
                [
                    np.abs(case.logits(group, moments, [Ablate(site, units=(unit,))]) - whole).mean(0).max(-1)
                    for unit in range(case.width(site))
                ],
                axis=-1,
            )  # [agent, unit]: an agent's units change its own logits alone, so all agents' are ablated at once
            sizes = {(agent, site): change[k] for k, agent in enumerate(case.members(group))}
            units |= largest(sizes, case.question.smallest, case.floor(group))
    return case.finding("ablate", ("agents", "sites", "units"), claims_of_units(units))
