"""dictionary_by_feature: the control for `dictionary`. It claims every feature that a logit depends on, without checks.

A feature's size is the covariance of its contribution with the logit. Poorly trained features write to units that were
never active; their contributions do not follow the agent's choices.
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
from marlnb.models.hooks.sites import group_of
from marlnb.recording.capture.recorder import record

N_FEATURES = 64


@analysis("dictionary_by_feature")
def features_taken_for_directions(instance: Instance) -> Finding:
    return instance.finding("dictionary_by_feature", ("features",), list(_directions(instance)))


def _directions(instance: Instance) -> Iterator[Claim]:
    min_covariance = instance.task.min_effect_share * largest_variance(instance)
    with record(instance.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as data:
        for agent, site in instance.last_pairs():
            group = group_of(site)
            try:
                dictionary = train(data, site, agent, n_features=N_FEATURES, seed=0)
            except AnalysisError:  # the layer is constant
                continue
            whole = driven_logits(instance, group, agent)
            covariance = np.einsum("fro,ro->fo", parts(instance, group, agent, dictionary), whole - whole.mean(0))
            for feature in np.flatnonzero(covariance.max(1) / len(whole) >= min_covariance):
                direction = tuple(dictionary.autoencoder.decoder[feature].tolist())
                yield FeatureClaim(agent=agent, site=site, basis=(direction,))
