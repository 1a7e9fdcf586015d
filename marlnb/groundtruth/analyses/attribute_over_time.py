"""attribute_over_time: from which step of an episode the last action's logits come, so when the memory was filled."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.attribution.temporal import attribute_over_time
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding


@analysis("attribute_over_time")
def filled_at(case: Case) -> Finding:
    claims: list[Claim] = []
    memory = case.question.network == "gru" and case.question.onset
    last = int(case.recording.rows["t"].max())
    for group in case.question.groups if memory else ():
        found = [
            attribute_over_time(
                case.recording,
                group=group,
                to="logit",
                target=output,
                t=last,
                lookback=last,
                n_steps=16,
                policies=case.policies,
            )
            for output in case.outputs[group]
        ]
        size = sum(np.abs(np.nan_to_num(each.values)).sum(-1) for each in found)  # [row, agent, lag]
        for k, agent in enumerate(case.members(group)):
            lags = np.asarray(size)[:, k].argmax(-1)
            steps = tuple((int(e), int(t) - int(lag)) for e, t, lag in zip(found[0].episode, found[0].t, lags))
            claims.append(Claim("onset", agent=agent, site=case.hidden_sites(group)[-1], steps=steps))
    return case.finding("attribute_over_time", ("onset",), claims)
