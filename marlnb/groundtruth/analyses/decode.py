"""decode: where a linear model reads the concept better than anything it is compared with.

Decoding says who holds a concept, not who uses it. Scored here as a claim of use all the same, to show how far the two
are apart: every agent, site and plane from which the concept is decoded above chance is named.
"""

from __future__ import annotations

import numpy as np

from marlnb.analysis.decoding import decode
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding

N_SHUFFLES = 19
LEVEL = 0.05
ABOVE = 0.2
"""By how much a score must be above chance: of what lies between chance and perfect."""


@analysis("decode")
def decode_concept(case: Case) -> Finding:
    sites = [site for group in case.question.groups for site in case.hidden_sites(group)]
    kind = "classification" if case.question.kind == "classes" else "regression"
    found = decode(
        case.recording,
        site=sites,
        label=case.question.concept,
        kind=kind,
        n_shuffles=N_SHUFFLES,
        folds=3,
        progress=False,
    )
    claims, holders = [], []
    for score, reading in zip(found.scores, found.readings):
        if score.p_value <= LEVEL and score.score - score.chance > ABOVE * (1 - score.chance):
            holders.append((score.agent, score.site))
            centred = (
                reading.patterns - reading.patterns.mean(0) if len(reading.patterns) > 2 else reading.patterns[-1:]
            )
            _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
            basis = directions[sizes > 0.1 * sizes[0]]
            claims.append(
                Claim("subspace", agent=score.agent, site=score.site, basis=tuple(map(tuple, basis.tolist())))
            )
    agents = tuple(dict.fromkeys(agent for agent, _ in holders))
    claims += [Claim("sites", sites=tuple(holders)), Claim("agents", agents=agents)]
    return case.finding("decode", ("agents", "sites", "subspace"), claims)
