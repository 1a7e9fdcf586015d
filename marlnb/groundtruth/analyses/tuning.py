"""tuning: which units follow the concept. As with decoding, they hold it; whether they use it is another question.

A tuning's p-values are corrected for the units of one agent at one site. A label is asked of several, so they are
multiplied by the number of these (Bonferroni), or each agent would have its own chance to be named by luck.
"""

from __future__ import annotations

import numpy as np

from marlnb.analysis.representations.tuning import tuning
from marlnb.analysis.results import ALPHA
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import RepresentsClaim
from marlnb.groundtruth.scoring.claims import NONSENSE
from marlnb.groundtruth.scoring.finding import Finding

N_SHUFFLES = 199


@analysis("tuning")
def tuned_units(instance: Instance) -> Finding:
    groups = instance.task.groups
    everywhere = [(site, agent) for g in groups for site in instance.hidden_sites(g) for agent in instance.members(g)]
    last = [(instance.hidden_sites(g)[-1], agent) for g in groups for agent in instance.members(g)]
    claims = [
        RepresentsClaim(agent=agent, site=site, units=units)
        for (agent, site), units in _tuned(instance, everywhere, instance.task.concept).items()
    ]
    fooled = _tuned(instance, last, instance.nonsense_label())
    claims += [RepresentsClaim(agent=agent, site=site, concept=NONSENSE) for agent, site in fooled]
    return instance.finding("tuning", ("represents",), claims)


def _tuned(
    instance: Instance, places: list[tuple[str, str]], by: str | np.ndarray
) -> dict[tuple[str, str], tuple[int, ...]]:
    """By (agent, site), the units whose p-value times the number of places is at most ALPHA, where there are any."""
    found = {}
    for site, agent in places:
        try:
            p = tuning(
                instance.recording, site=site, label=by, agent=agent, n_shuffles=N_SHUFFLES, n_bootstrap=20
            ).p_value
        except AnalysisError:  # the agent's units or label never vary: nothing is tuned
            continue
        units = tuple(map(int, np.flatnonzero(p * len(places) <= ALPHA)))
        if units:
            found[agent, site] = units
    return found
