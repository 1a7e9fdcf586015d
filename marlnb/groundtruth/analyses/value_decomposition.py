"""value_decomposition: the weight of each agent's Q value under a mixer, and which agent has weight zero."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.attribution.value_decomposition import decompose_value
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import ValueWeightClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding


@analysis("value_decomposition")
def weights_of(instance: Instance) -> Finding:
    claims: list[Claim] = []
    teams = [group for group in instance.task.groups if len(instance.members(group)) > 1]
    for group in teams:
        result = decompose_value(
            instance.recording, group, baseline="mean", n_steps=16, policies={group: instance.mixed_policy(group)}
        )
        weights = np.nanmean(result.weight, axis=0)
        for agent, weight in zip(result.agents, weights):
            if weight >= instance.task.min_effect_share * weights.max():
                claims.append(ValueWeightClaim(agent=agent, value=float(weight)))
    return instance.finding("value_decomposition", ("value_weight",) if teams else (), claims)
