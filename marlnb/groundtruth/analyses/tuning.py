"""tuning: which units vary with the concept. As in decoding, this shows representation, not use.

The p-values of `tuning` are corrected for the units of one agent at one site. Here they are also multiplied by the
number of (site, agent) pairs (Bonferroni).
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
    tuned = _tuned(instance, instance.pairs(), instance.task.concept)
    claims = [RepresentsClaim(agent=agent, site=site, units=units) for (agent, site), units in tuned.items()]
    nonsense_pairs = _tuned(instance, instance.last_pairs(), instance.nonsense_label())
    claims += [RepresentsClaim(agent=agent, site=site, concept=NONSENSE) for agent, site in nonsense_pairs]
    return instance.finding("tuning", ("represents",), claims)


def _tuned(
    instance: Instance, pairs: list[tuple[str, str]], label: str | np.ndarray
) -> dict[tuple[str, str], tuple[int, ...]]:
    """By (agent, site): units with p_value * n_pairs <= ALPHA. Pairs without such units are absent."""
    tuned = {}
    for agent, site in pairs:
        try:
            result = tuning(
                instance.recording, site=site, label=label, agent=agent, n_shuffles=N_SHUFFLES, n_bootstrap=20
            )
        except AnalysisError:  # constant units or label: nothing is tuned
            continue
        units = tuple(map(int, np.flatnonzero(result.p_value * len(pairs) <= ALPHA)))
        if units:
            tuned[agent, site] = units
    return tuned
