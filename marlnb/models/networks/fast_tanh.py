"""tanh in the faster of two ways that a CPU has; for a learner's update.

On Intel's processors MKL computes tanh in a third of the time of a sigmoid. On others its fast path is closed, and the
sigmoid takes a fraction of the time of tanh.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marlnb.processor import is_intel


def fast_tanh(x: Tensor) -> Tensor:
    """tanh(x), or 2 sigmoid(2 x) - 1, which equals it to an absolute 2e-7, in x's memory.

    x is float32, and must be the new result of an operation whose gradient does not need that result, such as a product
    or a sum.
    """
    if not sigmoid_is_faster(x):
        return torch.tanh(x)
    y: Tensor = _BySigmoid.apply(x) if torch.is_grad_enabled() else _by_sigmoid_(x)
    return y


def sigmoid_is_faster(x: Tensor) -> bool:
    """Whether tanh(x) is computed by the sigmoid: also in compiled code, which has functions of its own.

    It is not measured in each process, as a resumed training has the same bits.
    """
    return type(x) is not Tensor or not (torch.backends.mkl.is_available() and is_intel())


def _by_sigmoid_(x: Tensor) -> Tensor:
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class _BySigmoid(torch.autograd.Function):
    """Keeps its output for the gradient, as torch's tanh, and none of the steps in between."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        y = _by_sigmoid_(x.detach())  # mark_dirty would copy the gradient of a layer's output, which is a view
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, y)
