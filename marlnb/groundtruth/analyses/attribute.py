"""attribute: gradients and integrated gradients of the driven logits, to hidden units and to observations.

Units are named by their integrated gradients, planes by the gradients' span, effects by the gradient along a step. Who
says something to whom is read off the observed features that an output is attributed to: another agent's place or word.
"""

from __future__ import annotations

import numpy as np

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.methods import Method
from marlnb.groundtruth.instance import Case, analysis, claims_of_units, largest
from marlnb.groundtruth.scoring.claims import Claim, Finding

RANK_SHARE = 0.1
"""Share of the largest singular value below which a dimension of the gradients' span is not counted."""


@analysis("attribute")
def attribute_units(case: Case) -> Finding:
    units: dict[tuple[str, str], tuple[int, ...]] = {}
    claims: list[Claim] = []
    for group in case.question.groups:
        sites = case.hidden_sites(group)
        for site in sites:
            size = np.abs(_values(case, group, site, "integrated_gradients")).mean(1).max(0)  # [agent, unit]
            sizes = {(agent, site): size[k] for k, agent in enumerate(case.members(group))}
            here = largest(sizes, case.question.smallest, case.floor(group))
            units |= here
            slopes = _values(case, group, site, "gradient").mean(1)  # [output, agent, unit]
            for k, agent in enumerate(case.members(group)):
                if here.get((agent, site)):
                    claims += _along(agent, site, here[agent, site], slopes[:, k], case.outputs[group])
    attempts = ("agents", "sites", "units", "subspace", "effect")
    return case.finding("attribute", attempts, [*claims_of_units(units), *claims])


def _values(case: Case, group: str, site: str, method: Method) -> np.ndarray:
    """`[output, row, agent, unit]`."""
    found = [
        attribute(
            case.recording,
            group=group,
            to="logit",
            target=output,
            site=site,
            method=method,
            n_steps=16,
            policies=case.policies,
            progress=False,
        ).values
        for output in case.outputs[group]
    ]
    return np.nan_to_num(np.stack(found))


def _along(agent: str, site: str, units: tuple[int, ...], slopes: np.ndarray, outputs: list[int]) -> list[Claim]:
    """The plane and the effects of an agent's gradients `[output, unit]`, of the units that were named."""
    named = np.zeros_like(slopes)
    named[:, list(units)] = slopes[:, list(units)]
    _, sizes, directions = np.linalg.svd(named, full_matrices=False)
    basis = directions[sizes > RANK_SHARE * sizes[0]] if sizes[0] > 0 else directions[:0]
    claims = [Claim("subspace", agent=agent, site=site, basis=tuple(map(tuple, basis.tolist())))]
    for row, output in zip(named, outputs):
        for step in (*np.eye(slopes.shape[1])[list(units)], *basis):
            value = float(row @ step)
            claims.append(
                Claim("effect", agent=agent, site=site, direction=tuple(step.tolist()), output=output, value=value)
            )
    return claims
