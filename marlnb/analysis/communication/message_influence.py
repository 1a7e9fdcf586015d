"""Causal influence of communication: what a listener would do if it had received each other message.

Every message in turn replaces the one that the listener observed; the rest of its observation stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import RowBatch, Rows, RowSource
from marlnb.models.policies.distributions import Categorical
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

BATCH_ROWS = 8192
MAX_MESSAGES = 64


@dataclass(frozen=True)
class ReceivedMessages:
    """Where and when a listener observes messages.

    Attributes:
        source: the recording, as the listener's group sees it.
        agent_index: the listener's index in its group.
        features: `[message feature]`, indices into its observation.
        rows: time steps at which it has received a message.
    """

    source: RowSource
    agent_index: int
    features: np.ndarray
    rows: Rows


def causal_influence(received: ReceivedMessages, policy: Policy) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Causal influence of communication in bits, `[row]`.

    `sum_m p(m) KL(p(a | o, m) || p(a | o))` with `p(a | o) = sum_m p(m) p(a | o, m)`: the mutual information of message
    and action when the rest of the observation o is held fixed. p(m) is how often the message is received. A recurrent
    listener keeps its recorded state.

    Returns:
        bits, or None and the reason why they are not available.
    Source: Lowe et al. 2019, On the Pitfalls of Measuring Emergent Communication, section 3.3 (arXiv:1903.05168).
    """
    if policy.greedy:
        return None, ("no causal influence: the policy acts greedily, without probabilities",)
    if not isinstance(policy.distribution, Categorical):
        return None, ("no causal influence: the policy gives no probabilities of discrete actions",)
    group = received.source.group
    observed = received.source.observations(group, received.rows)[:, received.agent_index]
    messages, frequency = np.unique(observed[:, received.features], axis=0, return_counts=True)
    if not 2 <= len(messages) <= MAX_MESSAGES:
        return None, (
            f"no causal influence: it needs 2 to {MAX_MESSAGES} different messages; {len(messages)} are received",
        )
    weights = torch.from_numpy(frequency / frequency.sum())
    parts = []
    for batch in received.source.batches(received.rows, BATCH_ROWS):
        probabilities = [_probabilities(policy, received, batch, torch.from_numpy(message)) for message in messages]
        parts.append(_bits(torch.stack(probabilities), weights).numpy())
    return np.concatenate(parts), ()


@torch.no_grad()
@torch_threads(1)
def _probabilities(policy: Policy, received: ReceivedMessages, batch: RowBatch, message: Tensor) -> Tensor:
    """The listener's action probabilities `[row, action]` if it had received this message."""
    changed = batch.observations[received.source.group].clone()
    changed[:, received.agent_index, torch.from_numpy(received.features)] = message.to(changed.dtype)
    all_logits, _ = policy.logits(changed, recurrent=batch.recurrent)
    logits = all_logits[:, received.agent_index].double()
    if batch.action_mask is not None:
        logits = logits.masked_fill(~batch.action_mask[:, received.agent_index], -torch.inf)
    return logits.softmax(-1)


def _bits(probabilities: Tensor, weights: Tensor) -> Tensor:
    """Mutual information of message and action `[row]`.

    Args:
        probabilities: `[message, row, action]`.
        weights: `[message]`, how often each message is received.
    """
    mixture = torch.einsum("m,mra->ra", weights, probabilities)
    ratio = torch.log2(probabilities.clamp_min(1e-300)) - torch.log2(mixture.clamp_min(1e-300))
    return torch.einsum("m,mra->r", weights, probabilities * ratio).clamp_min(0)
