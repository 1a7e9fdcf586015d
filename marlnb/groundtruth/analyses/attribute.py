"""attribute: gradients and integrated gradients of the driven logits with respect to hidden units.

Integrated gradients give the units. The span of the gradients gives the subspace, and the gradient along a direction
gives the effect.
"""

from __future__ import annotations

import numpy as np

from marlnb.analysis.attribution.attribute import attribute
from marlnb.groundtruth.instance import Instance, analysis, claims_from_units, direction_claims
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding


@analysis("attribute")
def attribute_units(instance: Instance) -> Finding:
    units: dict[tuple[str, str], tuple[int, ...]] = {}
    claims: list[Claim] = []
    for group in instance.task.groups:
        for site in instance.hidden_sites(group):
            size = np.abs(_values(instance, group, site, "integrated_gradients")).mean(1).max(0)  # [agent, unit]
            slopes = _values(instance, group, site, "gradient").mean(1)  # [output, agent, unit]
            for k, (agent, large) in enumerate(instance.large_units(group, size).items()):
                units[agent, site] = large
                if large:
                    claims += direction_claims(agent, site, large, slopes[:, k], instance.outputs[group])
    attempts = ("agents", "sites", "units", "subspace", "effect")
    return instance.finding("attribute", attempts, [*claims_from_units(units), *claims])


def _values(instance: Instance, group: str, site: str, method: str) -> np.ndarray:
    """Attributions of the driven logits to a site, `[output, row, agent, unit]`."""
    values = []
    for output in instance.outputs[group]:
        attribution = attribute(
            instance.recording, group=group, to="logit", target=output, site=site, method=method, n_steps=16,
            policies=instance.policies, progress=False,
        )  # fmt: skip
        values.append(attribution.values)
    return np.nan_to_num(np.stack(values))
