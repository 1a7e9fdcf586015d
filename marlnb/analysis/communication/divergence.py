"""How far actions diverge from those under counterfactual messages.

Source: Jaques et al. 2019, Social Influence as Intrinsic Motivation for Multi-Agent Deep Reinforcement Learning,
equation 2 (arXiv:1810.08647): `D(p(a | m, o) || sum_m' p(m') p(a | m', o))`, the divergence of an agent's action
distribution from its mean over counterfactual messages m'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from marlnb.analysis.data.rows import RowBatch
from marlnb.errors import AnalysisError
from marlnb.models.policies.distributions import Deterministic, Gaussian
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

Divergence = Literal["kl", "total_variation"]


@torch.no_grad()
@torch_threads(1)
def divergence(
    policy: Policy,
    batch: RowBatch,
    observation: Tensor,
    counterfactuals: Iterable[Tensor],
    weights: Tensor,
    measure: Divergence,
) -> tuple[Tensor, Tensor]:
    """Divergence of the agents' action distributions from their mean under the counterfactual observations.

    Args:
        observation: `[row, agent, *shape]`.
        counterfactuals: such observations.
        weights: `[counterfactual, row, agent]`, whole numbers: how often each counterfactual is counted.
    Returns:
        The divergence `[row, agent]`; the total variation is the mean over an action's components, the KL divergence
        their sum. For continuous actions the mean over counterfactuals of the KL divergence, since a mixture of normals
        has no closed form. NaN where all weights are 0. And its first-order change `[counterfactual, row, agent]` due
        to each counterfactual, whose sum is 0.
    """
    actual, _ = policy.logits(observation, recurrent=batch.recurrent)
    changed = [policy.logits(other, recurrent=batch.recurrent)[0] for other in counterfactuals]
    distribution, weights = policy.distribution, weights.double()
    if isinstance(distribution, Gaussian):
        if measure != "kl":
            raise AnalysisError("the total variation of continuous actions has no closed form: use measure='kl'")
        slope = torch.stack([_gaussian_kl(actual, other, distribution.n_components) for other in changed]).double()
        return (weights * slope).sum(0) / weights.sum(0), _changes(slope, weights)
    if distribution is None or isinstance(distribution, Deterministic):
        raise AnalysisError(f"the policy of {policy.group.name!r} has no distribution of actions to compare")
    components = zip(_probabilities(policy, actual, batch), *(_probabilities(policy, x, batch) for x in changed))
    diverge = _kl if measure == "kl" else _total_variation
    pairs = [diverge(p.double(), torch.stack(others).double(), weights) for p, *others in components]
    value, slope = (torch.stack(parts).sum(0) for parts in zip(*pairs))
    n = len(pairs) if measure == "total_variation" else 1
    return value / n, _changes(slope / n, weights)


def _kl(p: Tensor, others: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """`KL(p || q)` with `q = (sum_k w_k p_k + p / 2) / (n + 1/2)` and `n = sum_k w_k`, and its derivatives by `p_k`.

    p itself counts half. Without it, the noise of a mean over n messages raises the divergence by about `chi² / 2n`,
    and a message that no other episode has makes it infinite. If it counted fully, the divergence would be too low by
    as much.

    Args:
        p: probabilities `[row, agent, choice]`; others: `[counterfactual, row, agent, choice]`.
        weights: `[counterfactual, row, agent]`.
    Returns:
        `[row, agent]`, and `[counterfactual, row, agent]` up to the factor `w_k / n`.
    """
    # sums of whole multiples of one p are exact: where the message changes nothing, the ratio is exactly 1
    n = weights.sum(0).unsqueeze(-1)
    q = (2 * _weighted_sum(weights, others) + p) / (2 * n + 1)
    ratio = torch.where(p > 0, p / q, 1)
    return (p * ratio.log()).sum(-1), -(others * torch.where(p > 0, ratio, 0)).sum(-1)


def _total_variation(p: Tensor, others: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """`sum_a |p - q| / 2` with `q = sum_k w_k p_k / n`, and its derivatives by `p_k`, as of `_kl`."""
    difference = p - _weighted_sum(weights, others) / weights.sum(0).unsqueeze(-1)
    return 0.5 * difference.abs().sum(-1), -0.5 * (others * difference.sign()).sum(-1)


def _weighted_sum(weights: Tensor, others: Tensor) -> Tensor:
    return (weights.unsqueeze(-1) * others).sum(0)


def _changes(slope: Tensor, weights: Tensor) -> Tensor:
    """`w_k / n (slope_k - sum_j w_j slope_j / n)`, `[counterfactual, row, agent]`; exactly 0 where slopes are equal."""
    n, slope = weights.sum(0), slope - slope[0]
    return weights / n * (slope - (weights * slope).sum(0) / n)


def check_measure(policy: Policy, measure: Divergence) -> None:
    """Raises AnalysisError for a measure that is not defined for a policy's actions."""
    if policy.greedy and measure == "kl":
        raise AnalysisError(
            f"the policy of {policy.group.name!r} takes the action of the largest Q: measure='total_variation' gives "
            "how often another message would change it"
        )


def _probabilities(policy: Policy, parameters: Tensor, batch: RowBatch) -> list[Tensor]:
    """Of each action component, `[row, agent, choice]`; for Q values, 1 for the largest."""
    distribution = policy.distribution
    assert distribution is not None
    masked = distribution.mask(parameters, batch.action_mask)
    components = masked.split(list(policy.group.action.n), dim=-1)
    if policy.greedy:
        return [torch.nn.functional.one_hot(q.argmax(-1), q.shape[-1]).float() for q in components]
    return [logits.softmax(-1) for logits in components]


def _gaussian_kl(p: Tensor, q: Tensor, n: int) -> Tensor:
    """KL(p || q) of diagonal normals: `sum log(s_q / s_p) + (s_p² + (m_p - m_q)²) / (2 s_q²) - 1/2`.

    Squashing both actions does not change it. Args: p, q: mean and log_std, `[..., 2 * component]`; n: components.
    """
    (mean_p, log_std_p), (mean_q, log_std_q) = p.split(n, -1), q.split(n, -1)
    variance_ratio = (2 * (log_std_p - log_std_q)).exp()
    distance = ((mean_p - mean_q) * (-log_std_q).exp()).square()
    return (log_std_q - log_std_p + 0.5 * (variance_ratio + distance - 1)).sum(-1)
