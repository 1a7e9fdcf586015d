"""steer: steers along each hidden unit. The change of the driven logits gives units, subspace and effects.

Slopes are scaled by each unit's standard deviation in each agent, so a constant unit has no effect.
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, EffectClaim, SubspaceClaim, UnitsClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding

RANK_SHARE = 0.1
"""Minimal singular value of a dimension of the slopes' span, as a share of the largest."""


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
                    k = instance.members(group).index(agent)
                    claims += _claims(agent, site, units, slopes[k], instance.outputs[group])
    attempts = ("agents", "units", "subspace", "effect")
    return instance.finding("steer", attempts, [*claims, AgentsClaim(agents=tuple(dict.fromkeys(agents)))])


def _claims(agent: str, site: str, units: tuple[int, ...], slopes: np.ndarray, outputs: list[int]) -> list[Claim]:
    claims: list[Claim] = [UnitsClaim(agent=agent, site=site, units=units)]
    restricted = np.zeros_like(slopes)
    restricted[:, list(units)] = slopes[:, list(units)]
    _, sizes, directions = np.linalg.svd(restricted, full_matrices=False)
    basis = directions[sizes > RANK_SHARE * sizes[0]]
    claims.append(SubspaceClaim(agent=agent, site=site, basis=tuple(map(tuple, basis.tolist()))))
    steps = [*np.eye(slopes.shape[1])[list(units)], *basis]
    for row, output in zip(restricted, outputs):
        for step in steps:
            value = float(row @ step)
            claims.append(EffectClaim(agent=agent, site=site, direction=tuple(step), output=output, value=value))
    return claims
