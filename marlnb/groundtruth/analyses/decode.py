"""decode: where linear models decode the concept, and whether they also decode a nonsense label.

decode_as_use is the control: it treats decodability as use. It claims every agent, site and subspace from which the
concept is decoded, and shows how far representation and use differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.linear_models import Kind
from marlnb.groundtruth.answer_key import as_tuples
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, RepresentsClaim, SitesClaim, SubspaceClaim
from marlnb.groundtruth.scoring.claims import NONSENSE, Claim
from marlnb.groundtruth.scoring.finding import Finding

N_SHUFFLES = 19
ABOVE = 0.1
"""Minimal (score - chance) / (1 - chance)."""


@analysis("decode")
def decode_concept(instance: Instance) -> Finding:
    claims: list[Claim] = [
        RepresentsClaim(agent=agent, site=site) for agent, site, _ in _above_chance(instance, decoded(instance))
    ]
    sites = [instance.hidden_sites(group)[-1] for group in instance.task.groups]
    nonsense = _decode(instance, sites, instance.nonsense_label(), "classification")
    claims += [RepresentsClaim(agent=a, site=s, concept=NONSENSE) for a, s, _ in _above_chance(instance, nonsense)]
    return instance.finding("decode", ("represents",), claims)


@analysis("decode_as_use")
def decode_as_use(instance: Instance) -> Finding:
    above_chance = list(_above_chance(instance, decoded(instance)))
    claims: list[Claim] = [
        SubspaceClaim(agent=a, site=s, basis=as_tuples(basis.tolist())) for a, s, basis in above_chance
    ]
    claims.append(SitesClaim(sites=tuple((agent, site) for agent, site, _ in above_chance)))
    claims.append(AgentsClaim(agents=tuple(dict.fromkeys(agent for agent, _, _ in above_chance))))
    return instance.finding("decode_as_use", ("agents", "sites", "subspace"), claims)


@lru_cache(maxsize=1)
def decoded(instance: Instance) -> Decoding:
    """Decodes the concept from every hidden site of every agent. Cached: several analyses use it."""
    sites = [site for group in instance.task.groups for site in instance.hidden_sites(group)]
    return _decode(instance, sites, instance.task.concept, instance.kind_of_decoding)


def _decode(instance: Instance, sites: list[str], label: str | np.ndarray, kind: Kind) -> Decoding:
    return decode(
        instance.recording, site=sites, label=label, kind=kind, n_shuffles=N_SHUFFLES, folds=3, progress=False
    )


def _above_chance(instance: Instance, decoding: Decoding) -> Iterator[tuple[str, str, np.ndarray]]:
    """(agent, site, basis of the patterns' span) wherever the score is above chance, corrected for multiple tests."""
    for score, decoder in zip(decoding.scores, decoding.decoders):
        if score.p_max <= ALPHA and score.score - score.chance > ABOVE * (1 - score.chance):
            patterns = decoder.patterns
            centred = patterns - patterns.mean(0) if len(patterns) > 1 else patterns
            _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
            yield score.agent, score.site, directions[sizes > 0.1 * sizes[0]]
