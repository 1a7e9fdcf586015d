"""influence: which agent drives which other, through what they say or through what is seen of them."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.communication.influence import Through, influence
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding

SMALLEST_SHARE = {"observation": 0.05, "communication": 0.05}
"""Of the largest influence, own observations included; or, of communication, in nats."""


@analysis("influence")
def pairs_of_agents(case: Case) -> Finding:
    pairs: set[tuple[str, str]] = set()
    ways: tuple[Through, ...] = ("observation", "communication")
    for through in ways:
        try:
            found = influence(case.recording, through, policies=case.policies, n_steps=16)
        except AnalysisError:  # nobody hears anybody
            continue
        top = float(np.nanmax(found.values)) if through == "observation" else 1.0
        for a, agent in enumerate(found.agents):
            for s, source in enumerate(found.sources):
                if agent != source and found.low[a, s] > SMALLEST_SHARE[through] * top:
                    pairs.add((source, agent))
    return case.finding("influence", ("influence",), [Claim("influence", pairs=tuple(sorted(pairs)))])
