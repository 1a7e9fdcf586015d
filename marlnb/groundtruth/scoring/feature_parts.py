"""The parts of an agent's logits that come from a dictionary's features at its last hidden layer, by ablation.

Features add up to the activations, and a linear head follows the last hidden layer. So a feature's part of a logit is
the change of the logit when the feature is set to zero.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.train import train_dictionary
from marlnb.groundtruth.instance import Instance
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

EPISODES, SEED = 400, 77
L1, EPOCHS = 0.3, 60


def train(
    recording: Recording,
    site: str,
    agent: str,
    *,
    n_features: int,
    seed: int,
    units: tuple[int, ...] | None = None,
    from_rest: bool = False,
) -> Dictionary:
    """A sparse dictionary of one agent's units at a site; units=None: all of them."""
    return train_dictionary(
        recording, site=site, agent=agent, units=units, from_rest=from_rest, kind="standard", n_features=n_features,
        l1=L1, epochs=EPOCHS, seed=seed, progress=False,
    )  # fmt: skip


def largest_variance(instance: Instance) -> float:
    """The largest variance of any driven logit of any agent, over the recorded rows."""
    return max(float(instance.logits(g, instance.batch(g), []).var(0).max()) for g in instance.task.groups)


def driven_logits(instance: Instance, group: str, agent: str) -> np.ndarray:
    """An agent's driven logits, `[row, output]`."""
    return instance.logits(group, instance.batch(group), [])[:, instance.members(group).index(agent)]


def parts(instance: Instance, group: str, agent: str, dictionary: Dictionary) -> np.ndarray:
    """`[feature, row, output]`: the change of an agent's driven logits without each feature."""
    agents, k = instance.agents, instance.members(group).index(agent)
    with_features = {**instance.policies, group: dictionary.attach(instance.policies[group])}
    with_sites = replace(instance, agents=Agents(with_features, agents.env, agents.path, networks=agents.networks))
    batch = instance.batch(group)
    baseline = with_sites.logits(group, batch, [])[:, k]
    site = f"{dictionary.site}_features"
    lost = np.zeros((dictionary.n_features, *baseline.shape))
    for feature in np.flatnonzero(dictionary.density):
        without: list[Edit] = [Ablate(site, units=(int(feature),), agents=(agent,))]
        lost[feature] = baseline - with_sites.logits(group, batch, without)[:, k]
    return lost


def share_kept(baseline: np.ndarray, part: np.ndarray) -> float:
    """Share of the variance of logits `[row, output]` that a part of them explains."""
    centred = baseline - baseline.mean(0)
    return float(1 - np.square(centred - (part - part.mean(0))).sum() / np.square(centred).sum())
