"""steer: steers along each hidden unit. The change of the driven logits gives units, subspace and effects.

Slopes are scaled by each unit's standard deviation in each agent, so a constant unit has no effect.
"""

from __future__ import annotations

from marlnb.groundtruth.instance import Instance, analysis, direction_claims
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, UnitsClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding


@analysis("steer")
def steer(instance: Instance) -> Finding:
    claims: list[Claim] = []
    agents: list[str] = []
    for group in instance.task.groups:
        for site in instance.hidden_sites(group):
            slopes = instance.slopes(group, site)
            for agent, units in instance.units_read(group, site, slopes).items():
                if units:
                    agents.append(agent)
                    claims.append(UnitsClaim(agent=agent, site=site, units=units))
                    along = slopes[instance.members(group).index(agent)]
                    claims += direction_claims(agent, site, units, along, instance.outputs[group])
    attempts = ("agents", "units", "subspace", "effect")
    return instance.finding("steer", attempts, [*claims, AgentsClaim(agents=tuple(dict.fromkeys(agents)))])
