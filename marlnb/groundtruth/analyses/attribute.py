"""attribute: gradients and integrated gradients of the driven logits with respect to hidden units.

Integrated gradients give the units. The span of the gradients gives the subspace, and the gradient along a direction
gives the effect.
"""

from __future__ import annotations

import numpy as np

from marlnb.analysis.attribution.attribute import attribute
from marlnb.groundtruth.instance import Instance, analysis, claims_from_units, select_large
from marlnb.groundtruth.scoring.circuit_claims import EffectClaim, SubspaceClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding

RANK_SHARE = 0.1
"""Minimal singular value of a dimension of the gradients' span, as a share of the largest."""


@analysis("attribute")
def attribute_units(instance: Instance) -> Finding:
    units: dict[tuple[str, str], tuple[int, ...]] = {}
    claims: list[Claim] = []
    for group in instance.task.groups:
        sites = instance.hidden_sites(group)
        for site in sites:
            size = np.abs(_values(instance, group, site, "integrated_gradients")).mean(1).max(0)  # [agent, unit]
            sizes = {(agent, site): size[k] for k, agent in enumerate(instance.members(group))}
            selected = select_large(sizes, instance.task.min_effect_share, instance.min_effect(group))
            units |= selected
            slopes = _values(instance, group, site, "gradient").mean(1)  # [output, agent, unit]
            for k, agent in enumerate(instance.members(group)):
                if selected.get((agent, site)):
                    claims += _along(agent, site, selected[agent, site], slopes[:, k], instance.outputs[group])
    attempts = ("agents", "sites", "units", "subspace", "effect")
    return instance.finding("attribute", attempts, [*claims_from_units(units), *claims])


def _values(instance: Instance, group: str, site: str, method: str) -> np.ndarray:
    """Attributions of the driven logits to a site, `[output, row, agent, unit]`."""
    values = [
        attribute(
            instance.recording,
            group=group,
            to="logit",
            target=output,
            site=site,
            method=method,
            n_steps=16,
            policies=instance.policies,
            progress=False,
        ).values
        for output in instance.outputs[group]
    ]
    return np.nan_to_num(np.stack(values))


def _along(agent: str, site: str, units: tuple[int, ...], slopes: np.ndarray, outputs: list[int]) -> list[Claim]:
    """Subspace and effect claims from an agent's gradients `[output, unit]`, restricted to the selected units."""
    restricted = np.zeros_like(slopes)
    restricted[:, list(units)] = slopes[:, list(units)]
    _, sizes, directions = np.linalg.svd(restricted, full_matrices=False)
    basis = directions[sizes > RANK_SHARE * sizes[0]] if sizes[0] > 0 else directions[:0]
    claims: list[Claim] = [SubspaceClaim(agent=agent, site=site, basis=tuple(map(tuple, basis.tolist())))]
    for row, output in zip(restricted, outputs):
        for step in (*np.eye(slopes.shape[1])[list(units)], *basis):
            value = float(row @ step)
            claims.append(
                EffectClaim(agent=agent, site=site, direction=tuple(step.tolist()), output=output, value=value)
            )
    return claims
