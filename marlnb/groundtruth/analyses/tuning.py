"""tuning: which units vary with the concept. As in decoding, they represent it; this does not mean that they use it.

A tuning's p-values are corrected for the units of one agent at one site. Several are tested, so the p-values are
multiplied by their number (Bonferroni); otherwise each agent could be named by chance.
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
    instance: Instance, pairs: list[tuple[str, str]], label: str | np.ndarray
) -> dict[tuple[str, str], tuple[int, ...]]:
    """By (agent, site), the units whose p-value times the number of pairs is at most ALPHA, where there are any."""
    tuned = {}
    for site, agent in pairs:
        try:
            p = tuning(
                instance.recording, site=site, label=label, agent=agent, n_shuffles=N_SHUFFLES, n_bootstrap=20
            ).p_value
        except AnalysisError:  # the agent's units or label never vary: nothing is tuned
            continue
        units = tuple(map(int, np.flatnonzero(p * len(pairs) <= ALPHA)))
        if units:
            tuned[agent, site] = units
    return tuned
