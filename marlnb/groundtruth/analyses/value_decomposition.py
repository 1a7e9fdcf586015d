"""value_decomposition: what each agent's Q adds to the team's under a mixer, and who adds nothing."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.attribution.value_decomposition import decompose_value
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding


@analysis("value_decomposition")
def weights_of(case: Case) -> Finding:
    claims: list[Claim] = []
    teams = [group for group in case.question.groups if len(case.members(group)) > 1]
    for group in teams:
        found = decompose_value(
            case.recording, group, baseline="mean", n_steps=16, policies={group: case.mixed_policy(group)}
        )
        weights = np.nanmean(found.weight, axis=0)
        for agent, weight in zip(found.agents, weights):
            if weight >= case.question.smallest * weights.max():
                claims.append(Claim("shares", agent=agent, value=float(weight)))
    return case.finding("value_decomposition", ("shares",) if teams else (), claims)
