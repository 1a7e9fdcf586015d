"""attribute_over_time: finds the episode step that the last action's logits depend on most: the memory's onset."""

from __future__ import annotations

from functools import partial

import numpy as np

from marlnb.analysis.attribution.over_time.attribute import attribute_over_time
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import OnsetClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding


@analysis("attribute_over_time")
def filled_at(instance: Instance) -> Finding:
    claims: list[Claim] = []
    has_memory = instance.task.network == "gru" and instance.task.onset
    last = int(instance.recording.rows["t"].max())
    for group in instance.task.groups if has_memory else ():
        explain = partial(attribute_over_time, instance.recording, group=group, to="logit", t=last, lookback=last)
        results = [explain(target=o, n_steps=16, policies=instance.policies) for o in instance.outputs[group]]
        size = sum(np.abs(np.nan_to_num(result.values)).sum(-1) for result in results)  # [row, agent, lag]
        for k, agent in enumerate(instance.members(group)):
            lags = np.asarray(size)[:, k].argmax(-1)
            steps = tuple((int(e), int(t) - int(lag)) for e, t, lag in zip(results[0].episode, results[0].t, lags))
            claims.append(OnsetClaim(agent=agent, site=instance.hidden_sites(group)[-1], steps=steps))
    return instance.finding("attribute_over_time", ("onset",), claims)
