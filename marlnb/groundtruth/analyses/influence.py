"""influence: which agent influences which other, through messages or through observations."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.communication.influence import Through, influence
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import InfluenceClaim
from marlnb.groundtruth.scoring.finding import Finding

MIN_SHARE = {"observation": 0.05, "communication": 0.05}
"""Minimal influence. observation: share of the largest, the agent's own features included; communication: nats."""


@analysis("influence")
def pairs_of_agents(instance: Instance) -> Finding:
    pairs: set[tuple[str, str]] = set()
    channels: tuple[Through, ...] = ("observation", "communication")
    for through in channels:
        try:
            result = influence(instance.recording, through, policies=instance.policies, n_steps=16, progress=False)
        except AnalysisError:  # no agent receives messages
            continue
        scale = float(np.nanmax(result.values)) if through == "observation" else 1.0
        for a, agent in enumerate(result.agents):
            for s, source in enumerate(result.sources):
                if agent != source and result.low[a, s] > MIN_SHARE[through] * scale:
                    pairs.add((source, agent))
    return instance.finding("influence", ("influence",), [InfluenceClaim(pairs=tuple(sorted(pairs)))])
