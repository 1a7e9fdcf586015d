"""What an agent would do had another said something else: the same rows, another episode's message in them.

Source: Jaques et al. 2019, equation 2 (arXiv:1810.08647): the divergence of what the agent does from the mean of what
it would do under messages that might have been.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import Moments, Rows, RowSource
from marlnb.errors import AnalysisError
from marlnb.models.policies.distributions import Deterministic, Gaussian
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

Divergence = Literal["kl", "total_variation"]


def donors(rows: Rows, n_draws: int, seed: int) -> np.ndarray:
    """`[draw, row]`: places of rows at the same step of other episodes, drawn evenly.

    Raises:
        AnalysisError: there is one episode only.
    """
    generator, found = np.random.default_rng(seed), np.zeros((n_draws, len(rows)), np.int64)
    if len(np.unique(rows.episode)) < 2:
        raise AnalysisError("messages are taken from other episodes; this recording has one episode only")
    for t in np.unique(rows.t):
        here = np.flatnonzero(rows.t == t)
        if len(here) == 1:  # the longest episode's end: any step of another one
            among = np.flatnonzero(rows.episode != rows.episode[here[0]])
            found[:, here[0]] = generator.choice(among, n_draws)
            continue
        shift = generator.integers(1, len(here), size=(n_draws, len(here)))
        found[:, here] = here[(np.arange(len(here)) + shift) % len(here)]
    return found


@torch.no_grad()
@torch_threads(1)
def divergence(policy: Policy, moments: Moments, seen: Tensor, others: Tensor, measure: Divergence) -> Tensor:
    """`[row, agent]`: how far what agents do, seeing `seen`, is from what they would do seeing each of `others`.

    Args:
        seen: `[row, agent, *shape]`; others: `[draw, row, agent, *shape]`.
    """
    actual, _ = policy.logits(seen, recurrent=moments.recurrent)
    found = [policy.logits(other, recurrent=moments.recurrent)[0] for other in others]
    distribution = policy.distribution
    if isinstance(distribution, Gaussian):
        if measure != "kl":
            raise AnalysisError("the total variation of continuous actions has no closed form: measure='kl'")
        return torch.stack([_gaussian_kl(actual, other, distribution.n_components) for other in found]).mean(0)
    if distribution is None or isinstance(distribution, Deterministic):
        raise AnalysisError(f"the policy of {policy.group.name!r} has no distribution of actions to compare")
    parts = zip(_probabilities(policy, actual, moments), *(_probabilities(policy, x, moments) for x in found))
    total = torch.zeros(actual.shape[:-1])
    for before, *after in parts:
        marginal = torch.stack(after).mean(0)
        if measure == "total_variation":
            total = total + 0.5 * (before - marginal).abs().sum(-1)
        else:
            # equal where the message changes nothing, so that what is 0 is exactly 0
            ratio = torch.where(before > 0, before / marginal.clamp(min=1e-30), 1)
            total = total + (before * ratio.log()).sum(-1)
    return total


def check_measure(policy: Policy, measure: Divergence) -> None:
    """Raises AnalysisError for a measure that a policy's actions do not have."""
    if policy.greedy and measure == "kl":
        raise AnalysisError(
            f"the policy of {policy.group.name!r} takes the choice of the largest Q: measure='total_variation' tells "
            "how often another message would change it"
        )


def _probabilities(policy: Policy, parameters: Tensor, moments: Moments) -> list[Tensor]:
    """Of each component, `[row, agent, choice]`; of Q values, 1 for the largest."""
    distribution = policy.distribution
    assert distribution is not None
    masked = distribution.mask(parameters, moments.action_mask)
    parts = masked.split(list(policy.group.action.n), dim=-1)
    if policy.greedy:
        return [torch.nn.functional.one_hot(part.argmax(-1), part.shape[-1]).float() for part in parts]
    return [part.softmax(-1) for part in parts]


def _gaussian_kl(one: Tensor, other: Tensor, n: int) -> Tensor:
    """KL divergence of diagonal normals from (mean, log_std) `[..., 2 * component]`; squashing both changes nothing."""
    (mean, log_std), (mean_2, log_std_2) = one.split(n, -1), other.split(n, -1)
    variance = (2 * (log_std - log_std_2)).exp()
    distance = ((mean - mean_2) * (-log_std_2).exp()).square()
    return (log_std_2 - log_std + 0.5 * (variance + distance - 1)).sum(-1)


def observed(source: RowSource, rows: Rows, batch_rows: int = 16384) -> Tensor:
    """The group's observations of all rows, `[row, agent, *shape]`."""
    steps = range(0, len(rows), batch_rows)
    parts = [
        source.observations(source.group, Rows(rows.index[s : s + batch_rows], rows.episode, rows.t)) for s in steps
    ]
    seen = torch.from_numpy(np.concatenate(parts))
    return seen if seen.dtype == torch.uint8 else seen.float()
