"""dictionary_by_feature: every feature of a plain dictionary that a logit hangs on, taken for a direction of the
network's own, with nothing tried. A warning, not an analysis.

A feature's size is its part's covariance with the logit: what a badly trained feature writes into units that were never
on follows nothing that the agent chooses by.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.feature_claims import FeatureClaim
from marlnb.groundtruth.scoring.feature_parts import EPISODES, SEED, driven_logits, largest_variance, parts, train
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.recording.capture.recorder import record

N_FEATURES = 64


@analysis("dictionary_by_feature")
def features_taken_for_directions(instance: Instance) -> Finding:
    return instance.finding("dictionary_by_feature", ("features",), list(_directions(instance)))


def _directions(instance: Instance) -> Iterator[Claim]:
    least = instance.task.min_effect_share * largest_variance(instance)
    with record(instance.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as seen:
        for group in instance.task.groups:
            site = instance.hidden_sites(group)[-1]
            for agent in instance.members(group):
                try:
                    dictionary = train(seen, site, agent, n_features=N_FEATURES, seed=0)
                except AnalysisError:  # the layer never varies
                    continue
                whole = driven_logits(instance, group, agent)
                covariance = np.einsum("fro,ro->fo", parts(instance, group, agent, dictionary), whole - whole.mean(0))
                for feature in np.flatnonzero(covariance.max(1) / len(whole) >= least):
                    row = tuple(dictionary.autoencoder.decoder[feature].tolist())
                    yield FeatureClaim(agent=agent, site=site, basis=(row,))
