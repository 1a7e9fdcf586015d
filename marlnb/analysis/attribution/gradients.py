"""Gradients for captum's methods, by one backward pass of the sum over examples."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from captum._utils.common import _run_forward
from captum.attr import GradientAttribution
from torch import Tensor

Method = TypeVar("Method", bound=GradientAttribution)


def by_sum(method: Method) -> Method:
    """The captum method, which then differentiates the sum of the examples' scores.

    Each score depends on its own example alone, so the gradient is the same. captum by itself passes the scores to
    autograd one by one, in Python, which takes five times as long for a small network.
    """
    method.gradient_func = _gradients_of_sum
    return method


def _gradients_of_sum(
    forward_fn: Any,
    inputs: Tensor | tuple[Tensor, ...],
    target_ind: Any = None,
    additional_forward_args: Any = None,
) -> tuple[Tensor, ...]:
    """As captum's `compute_gradients`, with its names of the arguments."""
    with torch.enable_grad():
        scores = _run_forward(forward_fn, inputs, target_ind, additional_forward_args)
        return torch.autograd.grad(scores.sum(), inputs)
