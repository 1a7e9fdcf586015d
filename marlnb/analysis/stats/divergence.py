"""Distances between two action distributions, step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.models.policies.choices import LOG_STD_RANGE
from marlnb.models.policies.distributions import (
    ActionDistribution,
    Categorical,
    Gaussian,
    MultiDiscrete,
    log_softmax,
)


def total_variation(distribution: ActionDistribution, before: Tensor, after: Tensor) -> Tensor | None:
    """Total variation distance `[...]` in [0, 1] of parameters `[..., parameter]`: TV(p, q) = sum_a |p_a - q_a| / 2.

    It is the largest difference in the probability of any event. For a multi-discrete action, the mean over its
    components; None for continuous actions.
    """
    parts = _components(distribution, before, after)
    if parts is None:
        return None
    return torch.stack([0.5 * (p.softmax(-1) - q.softmax(-1)).abs().sum(-1) for p, q in parts]).mean(0)


def kl_divergence(distribution: ActionDistribution, before: Tensor, after: Tensor) -> Tensor | None:
    """KL(p || q) = sum_a p_a (log p_a - log q_a) in nats, `[...]`, with p before and q after.

    For Gaussians, per component: (s_p^2 / s_q^2 + (m_p - m_q)^2 / s_q^2 - 1 - ln(s_p^2 / s_q^2)) / 2. Squashing changes
    neither. None for a distribution without a density.

    Source: Kullback and Leibler 1951, On Information and Sufficiency.
    """
    if type(distribution) is Gaussian:
        mean_p, std_p = _normal(before, distribution)
        mean_q, std_q = _normal(after, distribution)
        ratio = (std_p / std_q).square()
        return 0.5 * (ratio + ((mean_p - mean_q) / std_q).square() - 1 - ratio.log()).sum(-1)
    parts = _components(distribution, before, after)
    if parts is None:
        return None
    logs = [(log_softmax(p), log_softmax(q)) for p, q in parts]
    return torch.stack([(log_p.exp() * (log_p - log_q)).sum(-1) for log_p, log_q in logs]).sum(0).clamp(min=0)


def variation_and_kl(
    distribution: ActionDistribution, before: Tensor, after: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """`total_variation` (probability) and `kl_divergence` (nats) of `[..., parameter]`, each `[...]`, or None as there.

    The logarithms of both are computed once.
    """
    parts = _components(distribution, before, after)
    if parts is None:
        return None, kl_divergence(distribution, before, after)
    variations, divergences = [], []
    for p, q in parts:
        log_p, log_q = log_softmax(p), log_softmax(q)
        probability = log_p.exp()
        variations.append(0.5 * (probability - log_q.exp()).abs().sum(-1))
        divergences.append((probability * (log_p - log_q)).sum(-1))
    return torch.stack(variations).mean(0), torch.stack(divergences).sum(0).clamp(min=0)


def _components(distribution: ActionDistribution, before: Tensor, after: Tensor) -> list[tuple[Tensor, Tensor]] | None:
    if isinstance(distribution, Categorical):
        return [(before, after)]
    if isinstance(distribution, MultiDiscrete):
        return list(zip(before.split(distribution.n, -1), after.split(distribution.n, -1)))
    return None


def _normal(parameters: Tensor, distribution: Gaussian) -> tuple[Tensor, Tensor]:
    mean, log_std = parameters.split(distribution.n_components, -1)
    return mean, log_std.clamp(*LOG_STD_RANGE).exp()
