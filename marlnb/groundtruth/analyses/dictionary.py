"""dictionary: which features of an agent's last hidden layer the driven logits come through.

A dictionary's features add up to the activations, and behind the last hidden layer stands a linear head, so that a
feature's part of a logit is what the logit loses when the feature is zero. Its size is that part's covariance with the
logit: what a badly trained feature writes into units that were never on follows nothing that the agent chooses by.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marlnb.analysis.dictionary import train_dictionary
from marlnb.analysis.dictionary_result import Dictionary
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding
from marlnb.models.edits import Ablate
from marlnb.recording.recorder import record
from marlnb.training.agents import Agents

EPISODES, SEED = 400, 77
N_FEATURES, L1, EPOCHS = 64, 0.3, 30


@analysis("dictionary")
def features_used(case: Case) -> Finding:
    sizes: dict[tuple[str, str], np.ndarray] = {}
    written: dict[tuple[str, str], np.ndarray] = {}
    most = 0.0
    with record(case.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as seen:
        for group in case.question.groups:
            site, moments = case.hidden_sites(group)[-1], case.moments(group)
            whole = case.logits(group, moments, [])
            spread = whole.var(0)  # [agent, output]
            most = max(most, float(spread.max()))
            for k, agent in enumerate(case.members(group)):
                try:
                    found = train_dictionary(
                        seen, site=site, agent=agent, kind="standard", n_features=N_FEATURES, l1=L1, epochs=EPOCHS,
                        progress=False,
                    )  # fmt: skip
                except AnalysisError:  # the layer never varies
                    continue
                parts = _parts(case, group, k, found)
                centred = whole[:, k] - whole[:, k].mean(0)
                sizes[agent, site] = np.einsum("fro,ro->fo", parts, centred).max(1) / len(centred)
                written[agent, site] = found.autoencoder.decoder.numpy()
    claims: list[Claim] = []
    for (agent, site), size in sizes.items():
        for feature in np.flatnonzero(size >= case.question.smallest * most):
            direction = tuple(map(float, written[agent, site][feature]))
            claims.append(Claim("features", agent=agent, site=site, basis=(direction,)))
    agents = tuple(dict.fromkeys(claim.agent for claim in claims))
    return case.finding("dictionary", ("agents", "features"), [*claims, Claim("agents", agents=agents)])


def _parts(case: Case, group: str, k: int, found: Dictionary) -> np.ndarray:
    """`[feature, row, output]`: what an agent's driven logits lose without each feature."""
    agents = case.agents
    with_features = {**case.policies, group: found.attach(case.policies[group])}
    opened = replace(case, agents=Agents(with_features, agents.env, agents.path, networks=agents.networks))
    moments, agent = case.moments(group), case.members(group)[k]
    whole = opened.logits(group, moments, [])[:, k]
    site = f"{found.site}_features"
    without = (
        opened.logits(group, moments, [Ablate(site, units=(feature,), agents=(agent,))])[:, k]
        for feature in range(found.n_features)
    )
    return np.stack([whole - each for each in without])
