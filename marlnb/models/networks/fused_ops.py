"""Affine maps and tanh by the fastest kernels of a CPU, for a learner's update; equal to torch's own to rounding.

torch multiplies float32 matrices with MKL, which reaches half of an AMD processor's speed. oneDNN, which torch
includes, reaches all of it and applies the tanh in the same pass. Without oneDNN, on other devices, for other dtypes
and for small matrices, torch's own operations are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_MULTIPLICATIONS = 2**20  # of one product; below it oneDNN's preparation costs more than it gains


def affine(x: Tensor, weight: Tensor, bias: Tensor, *, tanh: bool = False) -> Tensor:
    """x `[..., in]` times weight `[out, in]` plus bias `[out]`, optionally its tanh; `[..., out]`."""
    if not torch.is_grad_enabled():
        return _product(x, weight, bias, tanh)
    y: Tensor = _Affine.apply(x, weight, bias, tanh)
    return y


def tanh_(x: Tensor) -> Tensor:
    """tanh(x) = 2 sigmoid(2 x) - 1, to an absolute 2e-7: torch's sigmoid is several times faster on a CPU.

    In place: nothing else may need x afterwards.
    """
    if x._is_view():  # autograd cannot follow an in-place change of a view inside a custom function
        x = x.clone()
    y: Tensor = _Tanh.apply(x) if torch.is_grad_enabled() else _tanh_by_sigmoid_(x)
    return y


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, tanh: bool = False) -> Tensor:
    """As `affine`, without gradient."""
    float32_on_cpu = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    if float32_on_cpu and x.numel() * len(weight) >= MIN_MULTIPLICATIONS and torch.backends.mkldnn.is_available():
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "tanh" if tanh else "none", [], "")
        return y
    y = F.linear(x, weight, bias)
    return _tanh_by_sigmoid_(y) if tanh else y


def _tanh_by_sigmoid_(x: Tensor) -> Tensor:
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        y = _tanh_by_sigmoid_(x)
        ctx.mark_dirty(y)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, y)


class _Affine(torch.autograd.Function):
    """The weight's gradient puts the shorter side first: 2 to 5 times faster for few inputs and many outputs.

    Weights that need no gradient, as a critic's through which an actor learns, cost nothing.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, tanh: bool) -> Tensor:  # type: ignore[override]
        y = _product(x, weight, bias, tanh)
        ctx.save_for_backward(x, weight, *([y] if tanh else []))
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:  # type: ignore[override]
        x, weight, *activated = ctx.saved_tensors
        if activated:
            gradient = torch.ops.aten.tanh_backward(gradient, activated[0])
        to_x = _product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return to_x, None, None, None
        rows, slopes = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        n_out, n_in = weight.shape
        to_weight = _product(rows.t(), slopes.t()).t() if n_in < n_out else _product(slopes.t(), rows.t())
        return to_x, to_weight, slopes.sum(0), None
