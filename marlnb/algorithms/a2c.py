"""A2C and MAA2C: the policy gradient of one pass over a rollout, with GAE. Each term of the loss is a function with its
equation.

It is PPO without ratios: at the first gradient step after a rollout both have the same gradient (Huang et al. 2022,
A2C is a special case of PPO, arXiv:2205.09123). Minibatches, normalisation, recurrence and turns are those of
`OnPolicyLearner`.
Source: Mnih et al. 2016 (arXiv:1602.01783); in groups of agents, Papoudakis et al. 2021 (arXiv:2006.07869).
"""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.algorithms.configs.a2c import A2CConfig
from marlnb.algorithms.losses import HUBER_DELTA, masked_mean, regression_loss
from marlnb.algorithms.on_policy import Minibatch
from marlnb.algorithms.ppo import MinibatchOutput, PolicyGradientLearner
from marlnb.config import LEARNERS


@LEARNERS.register(A2CConfig)
class A2CLearner(PolicyGradientLearner):
    """Learns one group's ActorCritic by the policy gradient; for MAA2C as well, by its options."""

    config: A2CConfig

    def policy_gradient_loss(self, output: MinibatchOutput, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return a2c_loss(self.config, output, minibatch)


def a2c_loss(config: A2CConfig, output: MinibatchOutput, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a minibatch, each term a mean over the agents that acted; and metrics without gradient:

        L = -log pi(a|s) A + value_coef L_value - entropy_coef H

    Source: Mnih et al. 2016, section 4 and algorithm S3 (arXiv:1602.01783).
    """
    weight = minibatch.get("weight")
    policy_loss = -masked_mean(output.log_prob * minibatch["advantage"], weight)
    errors = regression_loss(output.value, minibatch["target"], config.value_loss, delta=HUBER_DELTA)
    value_loss = masked_mean(errors, weight)
    entropy = masked_mean(output.entropy, weight)
    loss = policy_loss + config.value_coef * value_loss
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy
    with torch.no_grad():
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
        }
    return loss, metrics
