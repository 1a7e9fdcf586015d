"""steer: a step along every hidden unit; how the driven logits move gives units, plane and effect.

A step is the standard deviation of the unit in each agent: where a unit never moves, what it would do is no effect.
"""

from __future__ import annotations

import numpy as np

from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding

RANK_SHARE = 0.1
"""Share of the largest singular value below which a dimension of the effect is not counted."""


@analysis("steer")
def steer(case: Case) -> Finding:
    claims: list[Claim] = []
    agents: list[str] = []
    for group in case.question.groups:
        for site in case.hidden_sites(group):
            slopes = case.slopes(group, site)
            for agent, units in case.units_read(group, site, slopes).items():
                if units:
                    agents.append(agent)
                    k = case.members(group).index(agent)
                    claims += _claims(agent, site, units, slopes[k], case.outputs[group])
    attempts = ("agents", "units", "subspace", "effect")
    return case.finding("steer", attempts, [*claims, Claim("agents", agents=tuple(dict.fromkeys(agents)))])


def _claims(agent: str, site: str, units: tuple[int, ...], slopes: np.ndarray, outputs: list[int]) -> list[Claim]:
    claims = [Claim("units", agent=agent, site=site, units=units)]
    named = np.zeros_like(slopes)
    named[:, list(units)] = slopes[:, list(units)]
    _, sizes, directions = np.linalg.svd(named, full_matrices=False)
    basis = directions[sizes > RANK_SHARE * sizes[0]]
    claims.append(Claim("subspace", agent=agent, site=site, basis=tuple(map(tuple, basis.tolist()))))
    steps = [*np.eye(slopes.shape[1])[list(units)], *basis]
    for row, output in zip(named, outputs):
        for step in steps:
            value = float(row @ step)
            claims.append(Claim("effect", agent=agent, site=site, direction=tuple(step), output=output, value=value))
    return claims
