"""similarity: which agents' sites hold at a later checkpoint what they held, whatever the order of their units.

CKA weighs directions by their variance, CCA counts all alike; what is the same must be the same by both.
similarity_by_cka goes by the first alone. It is here to show what that is worth: where a circuit is loud, all the rest
of a layer may be another and hardly lower it.
"""

from __future__ import annotations

from functools import lru_cache

from marlnb.analysis.data.views import View
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.stats.similarity_measures import SimilarityMethod
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import SimilarClaim
from marlnb.groundtruth.scoring.finding import Finding

ALIKE = 0.99
"""From which on two sites are the same but for what training drifts."""


@analysis("similarity")
def same_by_cka_and_cca(instance: Instance) -> Finding:
    both = alike(instance, "cka") & alike(instance, "cca")
    return instance.finding("similarity", ("similar",), [SimilarClaim(sites=tuple(sorted(both)))])


@analysis("similarity_by_cka")
def same_by_cka(instance: Instance) -> Finding:
    return instance.finding(
        "similarity_by_cka", ("similar",), [SimilarClaim(sites=tuple(sorted(alike(instance, "cka"))))]
    )


@lru_cache(maxsize=2)
def alike(instance: Instance, method: SimilarityMethod) -> frozenset[tuple[str, str]]:
    """(agent, site) that are; kept, since two analyses read them."""
    places = [
        (agent, site)
        for g in instance.task.groups
        for site in instance.hidden_sites(g)
        for agent in instance.members(g)
    ]
    return frozenset(place for place in places if _score(instance, *place, method) >= ALIKE)


def _score(instance: Instance, agent: str, site: str, method: SimilarityMethod) -> float:
    """Of the recorded moments: shuffled episodes say nothing here, since what was drawn anew sees the same things."""
    before, after = (
        View(instance.recording, site, agent),
        View(instance.recording, site, agent, policy_source=instance.later),
    )
    return similarity(before, after, method=method, n_shuffles=1, n_bootstrap=20).score
