"""Planted mixer: an instance's agents form a team under a mixer with known weights, one of them zero.

The networks are the instance's own; their logits are taken as Q values. The mixer is QMIX's with a constant
hypernetwork. Its single hidden unit stays where ELU is the identity. So the team's value is, up to float32,

    Q_tot = sum_i w_i Q_i

The agent with weight zero is the decoy: its Q value varies like the others' but does not affect Q_tot.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.mixers import MonotonicMixer
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.q_policy import QPolicy
from marlnb.training.policies.agents import Agents

LIFT = 200.0
"""Offset added before ELU and subtracted after it; exceeds any weighted sum of the circuits' Q values."""
WEIGHTS = (0.0, 0.5, 2.0)


def mixing_weights(agents: tuple[str, ...], circuit: str, seed: int) -> dict[str, float]:
    """By agent: the planted weight. The seed determines the order of WEIGHTS."""
    rng = np.random.default_rng([seed, *circuit.encode()])
    permuted = rng.permutation(np.resize(WEIGHTS, len(agents)))
    return dict(zip(agents, permuted.tolist()))


def mixed_policy(agents: Agents, group: str, weights: dict[str, float]) -> QPolicy:
    """Returns one group's actors as Q networks under the planted mixer."""
    spec = agents.spec.group(group)
    mixer = MonotonicMixer(spec, agents.spec, units=1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.zero_()
        bias = [*(weights[name] for name in spec.agents), LIFT, 1.0, 0.0]
        mixer.hyper.bias.copy_(torch.tensor(bias))
        mixer.last_bias.bias.fill_(-LIFT)
    policy = QPolicy(spec, MLPConfig(hidden=(4,)), mixer)
    planted = cast(ActorCritic, agents.by_group[group])
    policy.actor, policy.recurrent_shape = planted.actor, planted.recurrent_shape
    return policy.eval()
