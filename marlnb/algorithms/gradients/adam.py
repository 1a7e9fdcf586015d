"""Adam with one flat vector for each part of a policy: few operations per step, and a state of plain tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from marlnb.errors import CheckpointError

BETAS = (0.9, 0.999)


class Factors(NamedTuple):
    """Of one part at one step: -lr / (1 - b1^t), and sqrt(1 - b2^t); numbers, or tensors.

    Tensors are `[]` for one training run and `[training, 1]` for several.
    """

    rate: float | Tensor
    root: float | Tensor


@torch.no_grad()
def adam_step(
    parts: Sequence[Sequence[Tensor]],
    gradients: Sequence[Tensor],
    moments: Sequence[Tensor],
    factors: Sequence[Factors],
    max_norm: float,
    eps: float,
) -> Tensor:
    """One step of `PartAdam`, which changes weights and moments in place.

    Args:
        parts: weights of each part.
        gradients: of all weights in turn.
        moments: m and v of each part in turn.
        factors: of each part.
        max_norm: bound on each part's gradient norm; 0: none.
        eps: added to the root of the second moment.
    Returns:
        each part's gradient norm before clipping, `[part]`.
    """
    remaining, norms = iter(gradients), []
    for weights, mean, square, part_factors in zip(parts, moments[::2], moments[1::2], factors, strict=True):
        gradient = torch.cat([next(remaining).reshape(-1) for _ in weights])
        norm = torch.linalg.vector_norm(gradient)
        if max_norm > 0:
            gradient.mul_((max_norm / (norm + 1e-6)).clamp_max_(1.0))
        change = adam_change(gradient, mean, square, part_factors, eps)
        deltas = change.split([weight.numel() for weight in weights])
        torch._foreach_add_(list(weights), [delta.view_as(weight) for delta, weight in zip(deltas, weights)])
        norms.append(norm)
    return torch.stack(norms)


def adam_change(gradient: Tensor, mean: Tensor, square: Tensor, factors: Factors, eps: float) -> Tensor:
    """Updates the moments in place, and overwrites the gradient with the change of the weights, which it returns."""
    mean.lerp_(gradient, 1 - BETAS[0])
    square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    return torch.div(mean, square.sqrt().div_(factors.root).add_(eps), out=gradient).mul_(factors.rate)


class PartAdam:
    """Adam with a learning rate and a gradient-norm bound for each part. Equal to `torch.optim.Adam` up to rounding.

        g <- g * min(1, max_norm / |g|)
        m <- b1 m + (1 - b1) g
        v <- b2 v + (1 - b2) g^2
        w <- w - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    Args:
        parts: modules by name, for example `{"actor": ..., "critic": ...}`; parameters that require no gradient are
            frozen, and left out.
        eps: added to the root of the second moment.

    Attributes:
        all_parameters: those that are trained, of all parts, in their order.
        steps: made so far: a number, or `[]` on the device after `make_capturable`.
        moments: by part, m and v, each one vector of the part's trained parameters in their order.
    Source: Kingma and Ba 2015, algorithm 1 (arXiv:1412.6980).
    """

    def __init__(self, parts: Mapping[str, nn.Module], eps: float) -> None:
        self.parameters: dict[str, list[Tensor]] = {
            part: [weight for weight in module.parameters() if weight.requires_grad] for part, module in parts.items()
        }
        self.eps = eps
        self.steps: int | Tensor = 0
        self.all_parameters = [weight for weights in self.parameters.values() for weight in weights]
        self.moments = {
            part: tuple(torch.zeros_like(nn.utils.parameters_to_vector(weights).detach()) for _ in BETAS)
            for part, weights in self.parameters.items()
        }

    def make_capturable(self) -> None:
        """Counts steps in a tensor, which a CUDA graph can do; up to rounding the steps are the same."""
        self.steps = torch.tensor(float(self.steps), dtype=torch.float64, device=self.all_parameters[0].device)

    def step(self, loss: Tensor, lr: Mapping[str, float | Tensor], max_norm: float) -> Tensor:
        """One gradient step.

        Args:
            loss: a scalar.
            lr: learning rate of each part: a number, or a tensor `[]` on the device.
            max_norm: bound on each part's gradient norm; 0: none.
        Returns:
            each part's gradient norm before clipping, `[part]`.
        """
        # autograd.grad, not backward(): nothing accumulates in .grad, so there is nothing to zero
        return self.apply(torch.autograd.grad(loss, self.all_parameters), lr, max_norm)

    def apply(self, gradients: Sequence[Tensor], lr: Mapping[str, float | Tensor], max_norm: float) -> Tensor:
        """As `step`, with the gradients of `all_parameters`."""
        factors = self.count_step(lr)
        return adam_step(list(self.parameters.values()), gradients, self.all_moments, factors, max_norm, self.eps)

    @property
    def all_moments(self) -> list[Tensor]:
        """m and v of each part in turn."""
        return [moment for moments in self.moments.values() for moment in moments]

    def parts_of(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """What belongs to `all_parameters`, by part."""
        remaining = iter(tensors)
        return [[next(remaining) for _ in weights] for weights in self.parameters.values()]

    def count_step(self, lr: Mapping[str, float | Tensor]) -> list[Factors]:
        """Counts one more step; its factors for each part."""
        self.steps += 1
        root = (1 - BETAS[1] ** self.steps) ** 0.5
        return [Factors(-lr[part] / (1 - BETAS[0] ** self.steps), root) for part in self.parameters]

    def state_dict(self) -> dict[str, Any]:
        moments = {part: {"mean": m.clone(), "square": v.clone()} for part, (m, v) in self.moments.items()}
        return {"steps": int(self.steps), **moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError if the state belongs to other parameters."""
        for part, moments in self.moments.items():
            for moment, name in zip(moments, ("mean", "square")):
                saved = state.get(part, {}).get(name)
                if saved is None or saved.shape != moment.shape:
                    size = "nothing" if saved is None else f"{saved.numel()} values"
                    raise CheckpointError(f"optimizer state of {part!r}: found {size}, expected {moment.numel()}")
                moment.copy_(saved)
        if isinstance(self.steps, Tensor):
            self.steps.fill_(int(state["steps"]))
        else:
            self.steps = int(state["steps"])
