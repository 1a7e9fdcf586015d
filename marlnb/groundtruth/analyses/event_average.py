"""event_average: the lag after an event at which an agent's last hidden layer changes most: the memory's onset."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.representations.event_average import event_average
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import OnsetClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding

LAGS = 3


@analysis("event_average")
def onsets(instance: Instance) -> Finding:
    claims: list[Claim] = []
    if not instance.task.onset:
        return instance.finding("event_average", ("onset",), claims)
    label = instance.recording.label(instance.task.onset).to_numpy() > 0
    event_steps = instance.recording.rows[label].groupby("episode")["t"].min()
    for agent, site in instance.last_pairs():
        average = event_average(
            instance.recording, event=label, site=site, agent=agent, before=LAGS, after=LAGS, n_shuffles=20,
            n_bootstrap=20,
        )  # fmt: skip
        changes = np.abs(np.diff(average.mean, axis=0)).sum(1)  # [lag after the first]
        lag = int(average.lags[1:][np.nanargmax(changes)])
        steps = tuple((int(episode), int(t) + lag) for episode, t in event_steps.items())
        claims.append(OnsetClaim(agent=agent, site=site, steps=steps))
    return instance.finding("event_average", ("onset",), claims)
