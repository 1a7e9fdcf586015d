"""similarity: which agents' sites keep their representation at a later checkpoint, up to a permutation of units.

CKA weights directions by their variance, CCA weights all alike. A site counts as unchanged only if both agree.
similarity_by_cka is the control: it uses CKA alone. Where a circuit has most of a layer's variance, the rest of the
layer may change and CKA hardly drops.
"""

from __future__ import annotations

from functools import lru_cache

from marlnb.analysis.data.views import View
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.stats.similarity_measures import SimilarityMethod
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import SimilarClaim
from marlnb.groundtruth.scoring.finding import Finding

MIN_SIMILARITY = 0.99
"""Minimal similarity of an unchanged site; tolerates drift in training."""


@analysis("similarity")
def same_by_cka_and_cca(instance: Instance) -> Finding:
    unchanged = similar_sites(instance, "cka") & similar_sites(instance, "cca")
    return instance.finding("similarity", ("similar",), [SimilarClaim(sites=tuple(sorted(unchanged)))])


@analysis("similarity_by_cka")
def same_by_cka(instance: Instance) -> Finding:
    claim = SimilarClaim(sites=tuple(sorted(similar_sites(instance, "cka"))))
    return instance.finding("similarity_by_cka", ("similar",), [claim])


@lru_cache(maxsize=2)
def similar_sites(instance: Instance, method: SimilarityMethod) -> frozenset[tuple[str, str]]:
    """The similar (agent, site) pairs. Cached: two analyses use them."""
    return frozenset(pair for pair in instance.pairs() if _score(instance, *pair, method) >= MIN_SIMILARITY)


def _score(instance: Instance, agent: str, site: str, method: SimilarityMethod) -> float:
    """Similarity at the recorded steps. A shuffled control is useless: redrawn features receive the same inputs."""
    before = View(instance.recording, site, agent)
    after = View(instance.recording, site, agent, policy_source=instance.later)
    return similarity(before, after, method=method, n_shuffles=1, n_bootstrap=20).score
