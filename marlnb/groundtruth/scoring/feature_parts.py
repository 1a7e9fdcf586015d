"""What a dictionary's features, at an agent's last hidden layer, do to its logits: each one's part, by leaving it out.

Features add up to the activations, and behind the last hidden layer stands a linear head, so that a feature's part of a
logit is what the logit loses when the feature is zero.
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
    seen: Recording,
    site: str,
    agent: str,
    *,
    n_features: int,
    seed: int,
    units: tuple[int, ...] | None = None,
    from_rest: bool = False,
) -> Dictionary:
    """A sparse dictionary of one agent's units at a site, all or some."""
    return train_dictionary(
        seen, site=site, agent=agent, units=units, from_rest=from_rest, kind="standard", n_features=n_features,
        l1=L1, epochs=EPOCHS, seed=seed, progress=False,
    )  # fmt: skip


def largest_variance(instance: Instance) -> float:
    """Of any driven logit of any agent, over the recorded rows."""
    return max(float(instance.logits(g, instance.batch(g), []).var(0).max()) for g in instance.task.groups)


def driven_logits(instance: Instance, group: str, agent: str) -> np.ndarray:
    """`[row, output]`."""
    return instance.logits(group, instance.batch(group), [])[:, instance.members(group).index(agent)]


def parts(instance: Instance, group: str, agent: str, found: Dictionary) -> np.ndarray:
    """`[feature, row, output]`: what an agent's driven logits lose without each feature."""
    agents, k = instance.agents, instance.members(group).index(agent)
    with_features = {**instance.policies, group: found.attach(instance.policies[group])}
    opened = replace(instance, agents=Agents(with_features, agents.env, agents.path, networks=agents.networks))
    batch = instance.batch(group)
    whole = opened.logits(group, batch, [])[:, k]
    site = f"{found.site}_features"
    lost = np.zeros((found.n_features, *whole.shape))
    for feature in np.flatnonzero(found.density):
        without: list[Edit] = [Ablate(site, units=(int(feature),), agents=(agent,))]
        lost[feature] = whole - opened.logits(group, batch, without)[:, k]
    return lost


def share_kept(whole: np.ndarray, part: np.ndarray) -> float:
    """Share of the variance of logits `[row, output]` that a part of them has."""
    centred = whole - whole.mean(0)
    return float(1 - np.square(centred - (part - part.mean(0))).sum() / np.square(centred).sum())
