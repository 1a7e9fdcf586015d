"""event_average: at which lag from the event the last hidden layer of each agent changes most, so from when it holds
the concept."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.representations.event_average import event_average
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding

LAGS = 3


@analysis("event_average")
def onsets(case: Case) -> Finding:
    claims: list[Claim] = []
    if not case.question.onset:
        return case.finding("event_average", ("onset",), claims)
    label = case.recording.label(case.question.onset).to_numpy() > 0
    rows = case.recording.rows
    first = rows[label].groupby("episode")["t"].min()
    for group in case.question.groups:
        site = case.hidden_sites(group)[-1]
        for agent in case.members(group):
            found = event_average(
                case.recording,
                event=label,
                site=site,
                agent=agent,
                before=LAGS,
                after=LAGS,
                n_shuffles=20,
                n_bootstrap=20,
            )
            jumps = np.abs(np.diff(found.mean, axis=0)).sum(1)  # [lag after the first]
            lag = int(found.lags[1:][np.nanargmax(jumps)])
            steps = tuple((int(episode), int(t) + lag) for episode, t in first.items())
            claims.append(Claim("onset", agent=agent, site=site, steps=steps))
    return case.finding("event_average", ("onset",), claims)
