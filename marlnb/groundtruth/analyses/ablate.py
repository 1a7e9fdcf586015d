"""ablate: zero-ablates each hidden unit. Units that change the driven logits belong to the circuit."""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.instance import Instance, analysis, claims_from_units, select_large
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.edits import Ablate


@analysis("ablate")
def ablate(instance: Instance) -> Finding:
    units: dict[tuple[str, str], tuple[int, ...]] = {}
    for group in instance.task.groups:
        batch = instance.batch(group)
        baseline = instance.logits(group, batch, [])
        for site in instance.hidden_sites(group):
            change = np.stack(
                [
                    np.abs(instance.logits(group, batch, [Ablate(site, units=(unit,))]) - baseline).mean(0).max(-1)
                    for unit in range(instance.width(site))
                ],
                axis=-1,
            )  # [agent, unit]: units affect only their own agent's logits, so all agents are ablated at once
            sizes = {(agent, site): change[k] for k, agent in enumerate(instance.members(group))}
            units |= select_large(sizes, instance.task.min_effect_share, instance.min_effect(group))
    return instance.finding("ablate", ("agents", "sites", "units"), claims_from_units(units))
