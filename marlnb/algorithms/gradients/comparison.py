"""Whether a compiled gradient step computes what torch's operators compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.adam import Factors, PartAdam, adam_step
from marlnb.algorithms.gradients.traced import Loss, Minibatch, NotCompiledError, TracedStep
from marlnb.models.networks.low_precision import full_precision
from marlnb.models.policies.random_numbers import RandomInputs

RELATIVE_TOLERANCE = 1e-3
ROUNDINGS = 4  # each of both steps has one, and one tensor's may be twice that of all together


Execute = Callable[[Sequence[Tensor], Sequence[Tensor], Minibatch, Sequence[Tensor], Sequence[Factors]], Tensor]
"""`CompiledStep.execute`: weights, moments, minibatch, random numbers, factors; it changes weights and moments."""


def check_step(
    execute: Execute,
    traced: TracedStep,
    loss: Loss,
    modules: nn.Module,
    optimizer: PartAdam,
    max_norm: float,
    minibatch: Minibatch,
) -> None:
    """Makes one step, compiled and by torch, from the same weights and moments; the training's own stay as they are.

    Steps of networks in lower precision may differ by ROUNDINGS times the rounding error of torch's step as well.

    Args:
        execute: makes the compiled step of `traced`.
        loss, modules, optimizer, max_norm: as of `trace`.
        minibatch: that of the step.
    Raises:
        NotCompiledError: they differ.
    """
    numbers = [draw(RandomInputs()) for draw in traced.draws]
    factors, before = [Factors(-1.0, 1.0) for _ in optimizer.parameters], optimizer.all_moments

    def moments_by_torch() -> list[Tensor]:
        value, _ = loss(minibatch, RandomInputs(iter(numbers)))
        gradients = torch.autograd.grad(value, optimizer.all_parameters)
        after, unused = _copies(before), optimizer.parts_of(_copies(traced.weights))
        adam_step(unused, gradients, after, factors, max_norm, optimizer.eps)
        return after

    weights, moments = _copies(traced.weights), _copies(before)
    execute(weights, moments, minibatch, numbers, factors)
    expected = moments_by_torch()
    with full_precision(modules):
        exact = moments_by_torch()
    means, squares = slice(0, None, 2), slice(1, None, 2)
    rounding = max(_relative_error(expected[kind], exact[kind], before[kind]) for kind in (means, squares))
    for ours, theirs, old in zip(moments, expected, before):
        _check_close(ours, theirs, (theirs - old).abs().max(), RELATIVE_TOLERANCE + ROUNDINGS * rounding)
    # where a gradient is rounding alone, Adam's step may have either sign: weights are compared by these moments
    parts = zip(optimizer.parts_of(weights), optimizer.parts_of(traced.weights), moments[means], moments[squares])
    for changed, unchanged, mean, square in parts:
        change = torch.cat([(new - old).reshape(-1) for new, old in zip(changed, unchanged)])
        step = -mean / (square.sqrt() + optimizer.eps)
        _check_close(change, step, step.abs().max(), RELATIVE_TOLERANCE)


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def _relative_error(rounded: Sequence[Tensor], exact: Sequence[Tensor], before: Sequence[Tensor]) -> float:
    """|rounded - exact| / |exact - before|, Euclidean, of all tensors together; 0 where nothing was rounded."""
    ours, full, old = (torch.cat([tensor.reshape(-1) for tensor in tensors]) for tensors in (rounded, exact, before))
    error = (ours - full).norm()
    return float(error / (full - old).norm()) if error > 0 else 0.0


def _check_close(ours: Tensor, expected: Tensor, size: Tensor, tolerance: float) -> None:
    difference = (ours - expected).abs().max()
    if not difference <= tolerance * size + 1e-6:
        raise NotCompiledError(f"it differs from torch's by {float(difference):.2g} of {float(size):.2g}")
