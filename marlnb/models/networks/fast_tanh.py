"""tanh by torch's sigmoid, which is several times faster on AMD's processors than torch's tanh; for a learner's update.

On Intel's, torch's tanh takes a third of the time of this one (MKL). But its last bits depend on the place of a number
in the tensor: what a recording recomputes would not be the same in another number of rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def fast_tanh_(x: Tensor) -> Tensor:
    """tanh(x) = 2 sigmoid(2 x) - 1, to an absolute 2e-7, in x's memory.

    x is float32, and must be the new result of an operation whose gradient does not need that result, such as a product
    or a sum.
    """
    y: Tensor = _FastTanh.apply(x) if torch.is_grad_enabled() else _by_sigmoid_(x)
    return y


def _by_sigmoid_(x: Tensor) -> Tensor:
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class _FastTanh(torch.autograd.Function):
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
