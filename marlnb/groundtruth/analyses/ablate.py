"""ablate: zero-ablates each hidden unit. Units that change the driven logits belong to the circuit."""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.instance import Instance, analysis, claims_from_units
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
            units |= {(agent, site): large for agent, large in instance.large_units(group, change).items()}
    return instance.finding("ablate", ("agents", "sites", "units"), claims_from_units(units))
