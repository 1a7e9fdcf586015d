"""PPO's losses as one plain function of a minibatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

ValueLoss = Literal["l2", "huber"]
HUBER_DELTA = 10.0
METRICS = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")


class LossSettings(NamedTuple):
    """The coefficients of the loss; `value_clip` None leaves the critic's change unbounded."""

    clip: float
    entropy_coef: float
    value_coef: float
    value_clip: float | None
    value_loss: ValueLoss


def ppo_losses(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    sample: Mapping[str, Tensor],
    settings: LossSettings,
) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and METRICS `[metric]` without gradient.

    Args:
        log_prob, entropy, value: of the policy being trained, `[..., agent]`; value normalised.
        sample: of the rollout, `[..., agent]`: log_prob, advantage, target (normalised), value (normalised; with
            value_clip only), weight (1 where the agent acted, else 0; absent where every agent did).
    Source: Schulman et al. 2017, equations 7 and 9; value clipping and Huber loss: Yu et al. 2022, appendix.
    """
    weight = sample.get("weight")
    log_ratio = log_prob - sample["log_prob"]
    ratio = log_ratio.exp()
    advantage = sample["advantage"]
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    policy_loss = -_mean(torch.minimum(ratio * advantage, clipped * advantage), weight)
    value_loss = _mean(_value_errors(value, sample, settings), weight)
    mean_entropy = _mean(entropy, weight)
    loss = policy_loss + settings.value_coef * value_loss
    if settings.entropy_coef:
        loss = loss - settings.entropy_coef * mean_entropy
    with torch.no_grad():
        kl = _mean(ratio - 1 - log_ratio, weight)
        outside = _mean(((ratio - 1).abs() > settings.clip).to(ratio.dtype), weight)
        metrics = torch.stack((policy_loss, value_loss, mean_entropy, kl, outside))
    return loss, metrics


def _value_errors(value: Tensor, sample: Mapping[str, Tensor], settings: LossSettings) -> Tensor:
    errors = _error(value, sample["target"], settings.value_loss)
    if settings.value_clip is None:
        return errors
    near = sample["value"] + (value - sample["value"]).clamp(-settings.value_clip, settings.value_clip)
    return torch.maximum(errors, _error(near, sample["target"], settings.value_loss))


def _error(value: Tensor, target: Tensor, kind: ValueLoss) -> Tensor:
    if kind == "huber":
        return F.huber_loss(value, target, reduction="none", delta=HUBER_DELTA)
    return 0.5 * (value - target).square()


def _mean(x: Tensor, weight: Tensor | None) -> Tensor:
    return x.mean() if weight is None else (x * weight).sum() / weight.sum().clamp_min(1)
