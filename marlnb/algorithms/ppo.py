"""IPPO and MAPPO: proximal policy optimisation with a critic of each agent's own view, or of everyone's.

Source: Schulman et al. 2017 (arXiv:1707.06347); de Witt et al. 2020 (arXiv:2011.09533); Yu et al. 2022
(arXiv:2103.01955). The tests compare the losses and their gradients with torchrl's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.algorithms.configs.choices import RegressionLoss
from marlnb.algorithms.configs.ppo import IPPOConfig as IPPOConfig
from marlnb.algorithms.configs.ppo import MAPPOConfig as MAPPOConfig
from marlnb.algorithms.losses import masked_mean, regression_loss
from marlnb.algorithms.on_policy import Minibatch
from marlnb.algorithms.policy_gradient import Evaluation

HUBER_DELTA = 10.0


def ppo_loss(config: IPPOConfig, evaluation: Evaluation, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a minibatch, each term a mean over the agents that acted; and metrics without gradient:

        L = L_clip + value_coef L_value - entropy_coef H

    Source: Schulman et al. 2017, equation 9 (arXiv:1707.06347).
    """
    weight = minibatch.get("weight")
    log_ratio = evaluation.log_prob - minibatch["log_prob"]
    ratio = log_ratio.exp()
    policy_loss = -masked_mean(clipped_surrogate(ratio, minibatch["advantage"], config.clip), weight)
    value_error = value_errors(
        evaluation.value, minibatch["target"], config.value_loss, minibatch.get("value"), config.value_clip
    )
    value_loss = masked_mean(value_error, weight)
    entropy = masked_mean(evaluation.entropy, weight)
    loss = policy_loss + config.value_coef * value_loss
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy
    with torch.no_grad():
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": masked_mean(approximate_kl(log_ratio), weight),
            "clip_fraction": masked_mean(((ratio - 1).abs() > config.clip).to(ratio.dtype), weight),
        }
    return loss, metrics


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's objective of each action, to be maximised:

        min(r A, clip(r, 1 - clip, 1 + clip) A),  r = pi(a|s) / pi_old(a|s)

    Source: Schulman et al. 2017, equation 7 (arXiv:1707.06347).
    """
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def value_errors(
    value: Tensor, target: Tensor, kind: RegressionLoss, old_value: Tensor | None, clip: float | None
) -> Tensor:
    """The value loss of each state. With `clip`, the larger of two losses:

        max(l(V, target), l(V_old + clip(V - V_old, -clip, clip), target))

    The larger one, so that clipping never hides an error: it only stops rewarding changes beyond the bound.
    Source: Schulman et al.'s code; Huber loss and clipping in MAPPO: Yu et al. 2022, appendix (arXiv:2103.01955).
    """
    errors = regression_loss(value, target, kind, delta=HUBER_DELTA)
    if clip is None:
        return errors
    assert old_value is not None
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(errors, regression_loss(clipped, target, kind, delta=HUBER_DELTA))


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Of each action, an unbiased estimate of KL(pi_old || pi) in nats that is never negative: r - 1 - log r.

    Source: Schulman 2020, Approximating KL Divergence, estimator k3 (joschu.net/blog/kl-approx.html).
    """
    return log_ratio.exp() - 1 - log_ratio
