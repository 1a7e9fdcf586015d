"""tuning: which units follow the concept. As with decoding, they hold it; whether they use it is another question."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding

N_SHUFFLES = 39


@analysis("tuning")
def tuned_units(case: Case) -> Finding:
    claims = []
    for group in case.question.groups:
        for site in case.hidden_sites(group):
            for agent in case.members(group):
                units = _tuned(case, site, agent)
                if len(units):
                    claims.append(Claim("holds", agent=agent, site=site, units=tuple(map(int, units))))
    return case.finding("tuning", ("holds",), claims)


def _tuned(case: Case, site: str, agent: str) -> np.ndarray:
    try:
        return tuning(
            case.recording, site=site, by=case.question.concept, agent=agent, n_shuffles=N_SHUFFLES, repetitions=20
        ).tuned
    except AnalysisError:  # the agent's units or label never vary: nothing is tuned
        return np.array([], dtype=int)
