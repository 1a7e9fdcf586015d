"""Log-probability and entropy of one choice of n, in few passes over the logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_VECTOR = 16
"""Choices from which on torch's log_softmax over the last axis uses a CPU's vector instructions."""


def log_softmax(logits: Tensor) -> Tensor:
    """Over the last axis. On a CPU fewer than MIN_VECTOR choices are computed along the rows, several times as fast."""
    n_choices = logits.shape[-1]
    if n_choices >= MIN_VECTOR or logits.device.type != "cpu":
        return logits.log_softmax(-1)
    return logits.reshape(-1, n_choices).t().log_softmax(0).t().view_as(logits)


def log_prob_and_entropy(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Of categorical distributions, in nats:

        log p_a = log_softmax(z)_a        d log p_a / dz_k = [k = a] - p_k
        H = -sum_k p_k log p_k            dH / dz_k        = -p_k (log p_k + H)

    Second derivatives are not available for MIN_VECTOR choices and more.

    Args:
        logits: z, `[..., choice]`.
        action: a, `[...]`.
    Returns:
        log p_a and H, `[...]`.
    """
    if logits.shape[-1] >= MIN_VECTOR:
        log_prob, entropy = _LogProbAndEntropy.apply(logits, action)
        return log_prob, entropy
    log_probs = log_softmax(logits)  # few choices: the compiler fuses torch's own gradients better
    log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return log_prob, -(log_probs.exp() * log_probs).sum(-1)


class _LogProbAndEntropy(torch.autograd.Function):
    """As torch's operations one after the other, whose gradients take twice as many passes over the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        log_probs = log_softmax(logits)
        probs, chosen = log_probs.exp(), action.unsqueeze(-1)
        entropy = (probs * log_probs).sum(-1).neg_()
        ctx.save_for_backward(log_probs, probs, chosen, entropy)
        ctx.set_materialize_grads(False)
        return log_probs.gather(-1, chosen).squeeze(-1), entropy

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, of_log_prob: Tensor | None, of_entropy: Tensor | None
    ) -> tuple[Tensor | None, None]:
        log_probs, probs, chosen, entropy = ctx.saved_tensors
        gradient = None
        if of_entropy is not None:
            gradient = (log_probs + entropy.unsqueeze(-1)).mul_(probs).mul_(-of_entropy.unsqueeze(-1))
        if of_log_prob is not None:
            of_chosen = of_log_prob.unsqueeze(-1)
            of_all = probs * -of_chosen if gradient is None else gradient.addcmul_(probs, of_chosen, value=-1)
            gradient = of_all.scatter_add_(-1, chosen, of_chosen)
        return gradient, None
