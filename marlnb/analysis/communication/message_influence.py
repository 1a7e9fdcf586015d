"""What an agent would have done, had it heard something else: every message in turn, put into what it observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.models.policies.distributions import Categorical
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

BATCH_ROWS = 8192
MOST_MESSAGES = 64


@dataclass(frozen=True)
class Heard:
    """Where a listener hears.

    Attributes:
        place: the listener's, among the agents of its group; features: `[message feature]`, indices into what it sees.
        rows: those at which it has heard something.
    """

    source: RowSource
    place: int
    features: np.ndarray
    rows: Rows


def influence_of(heard: Heard, policy: Policy) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Bits `[row]`: what the message tells about the action, everything else that the listener sees held fixed.

    The mean over messages m, as often as they are heard, of KL(p(action | o, m) || p(action | o)), with p(action | o)
    their mixture. A recurrent listener keeps the memory that it had. None, and why, where that cannot be had.

    Source: Lowe et al. 2019, section 3.3, causal influence of communication (arXiv:1903.05168).
    """
    if policy.distribution is not None and not isinstance(policy.distribution, Categorical):
        return None, ("the causal influence was not tried: the policy gives no probabilities of discrete actions",)
    if policy.distribution is None:
        return None, ("the causal influence was not tried: the policy acts greedily, without probabilities",)
    seen = heard.source.observations(heard.source.group, heard.rows)[:, heard.place]
    messages, frequency = np.unique(seen[:, heard.features], axis=0, return_counts=True)
    if not 2 <= len(messages) <= MOST_MESSAGES:
        return None, (f"the causal influence was not tried: {len(messages)} different messages are heard",)
    weights = torch.from_numpy(frequency / frequency.sum())
    parts = []
    for moments in heard.source.batches(heard.rows, BATCH_ROWS):
        own = moments.observations[heard.source.group]
        answers = [
            _probabilities(policy, heard, own, torch.from_numpy(message), moments.recurrent, moments.action_mask)
            for message in messages
        ]
        parts.append(_bits(torch.stack(answers), weights).numpy())
    return np.concatenate(parts), ()


@torch.no_grad()
@torch_threads(1)
def _probabilities(
    policy: Policy, heard: Heard, own: Tensor, message: Tensor, recurrent: Tensor | None, mask: Tensor | None
) -> Tensor:
    """`[row, action]` of the listener, had it heard this message."""
    changed = own.clone()
    changed[:, heard.place, torch.from_numpy(heard.features)] = message.to(own.dtype)
    logits, _ = policy.logits(changed, recurrent=recurrent)
    chosen = logits[:, heard.place].double()
    if mask is not None:
        chosen = chosen.masked_fill(~mask[:, heard.place], -torch.inf)
    return chosen.softmax(-1)


def _bits(answers: Tensor, weights: Tensor) -> Tensor:
    """Mutual information `[row]` of message and action, from `[message, row, action]` and how often each is heard."""
    mixture = torch.einsum("m,mra->ra", weights, answers)
    ratio = torch.log2(answers.clamp_min(1e-300)) - torch.log2(mixture.clamp_min(1e-300))
    return torch.einsum("m,mra->r", weights, answers * ratio).clamp_min(0)
