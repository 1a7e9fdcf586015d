"""tuning: which units follow the concept. As with decoding, they hold it; whether they use it is another question."""

from __future__ import annotations

import numpy as np

from marlnb.analysis.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding
from marlnb.groundtruth.discoveries import NONSENSE

N_SHUFFLES = 39


@analysis("tuning")
def tuned_units(case: Case) -> Finding:
    claims = []
    for group in case.question.groups:
        for site in case.hidden_sites(group):
            for agent in case.members(group):
                units = _tuned(case, site, agent, case.question.concept)
                if len(units):
                    claims.append(Claim("holds", agent=agent, site=site, units=tuple(map(int, units))))
        last = case.hidden_sites(group)[-1]
        for agent in case.members(group):
            if len(_tuned(case, last, agent, case.nonsense())):
                claims.append(Claim("holds", agent=agent, site=last, concept=NONSENSE))
    return case.finding("tuning", ("holds",), claims)


def _tuned(case: Case, site: str, agent: str, by: str | np.ndarray) -> np.ndarray:
    try:
        return tuning(case.recording, site=site, by=by, agent=agent, n_shuffles=N_SHUFFLES, repetitions=20).tuned
    except AnalysisError:  # the agent's units or label never vary: nothing is tuned
        return np.array([], dtype=int)
