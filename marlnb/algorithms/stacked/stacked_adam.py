"""Adam for several runs: `PartAdam`'s equations on matrices `[training, weight]`, each row with its own rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.adam import BETAS, Factors, PartAdam, adam_change
from marlnb.models.networks.stacking import stack_weights, stacked_views


class StackedPart:
    """One part of several policies, such as their actors: all weights in one matrix.

    The modules' own parameters and the optimizers' moments become views of its rows. So each training's checkpoints,
    evaluations and recordings read and load them as ever.

    Args:
        name: of the part, as in each optimizer.
        modules: of one architecture, one for each training run.
        optimizers: theirs.

    Attributes:
        matrix: `[training, weight]`.
        weights: by parameter's name, `[training, *shape]`: views of the matrix, for gradients.
        moments: m and v, each `[training, weight]`.
    """

    def __init__(self, name: str, modules: Sequence[nn.Module], optimizers: Sequence[PartAdam]) -> None:
        self.matrix = stack_weights(modules)
        views = stacked_views(modules[0], self.matrix)
        self.weights = {parameter: weight.requires_grad_() for parameter, weight in views.items()}
        moments_by_optimizer = [optimizer.moments[name] for optimizer in optimizers]
        self.moments = tuple(torch.stack([moments[k] for moments in moments_by_optimizer]) for k in range(len(BETAS)))
        for row, optimizer in enumerate(optimizers):
            optimizer.moments[name] = tuple(moment[row] for moment in self.moments)

    def weights_of(self, rows: slice) -> dict[str, Tensor]:
        """By parameter's name, the weights of some training runs: views of the matrix without gradients."""
        return {name: weight.detach()[rows] for name, weight in self.weights.items()}

    def change(self, gradient: Tensor, lr: Tensor, steps: Tensor, eps: float, max_norm: Tensor) -> Tensor:
        """One step of Adam, `PartAdam`'s, for each training run.

        Args:
            gradient: `[training, weight]`; it is overwritten.
            lr: learning rates, `[training, 1]`.
            steps: numbers of this step, `[training, 1]`, float64.
            eps: added to the root of the second moment.
            max_norm: bounds on the gradient's norm, `[training, 1]`; infinite: none.
        Returns:
            the gradient's norms before clipping, `[training]`.
        """
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        gradient.mul_((max_norm / (norm + 1e-6)).clamp_max_(1.0))
        rate = (-lr / (1 - BETAS[0] ** steps)).to(gradient.dtype)
        root = (1 - BETAS[1] ** steps).sqrt().to(gradient.dtype)
        mean, square = self.moments
        self.matrix.add_(adam_change(gradient, mean, square, Factors(rate, root), eps))
        return norm.squeeze(1)


class StackedAdam:
    """The optimizers of several training runs, stepped together; each keeps its own count of steps.

    Args:
        optimizers: one for each training run, with the same parts and the same eps.
        modules: by part, of each training run.

    Attributes:
        parts: by name.
        parameters: of each part, `[training, *shape]`, as `PartAdam` has them of one training run.
    """

    def __init__(self, optimizers: Sequence[PartAdam], modules: Mapping[str, Sequence[nn.Module]]) -> None:
        self._optimizers, self._eps = list(optimizers), optimizers[0].eps
        self.parts = {name: StackedPart(name, part_modules, optimizers) for name, part_modules in modules.items()}
        self.parameters = {name: list(part.weights.values()) for name, part in self.parts.items()}

    def step(self, loss: Tensor, lr: Mapping[str, Tensor], max_norm: Tensor) -> Tensor:
        """One gradient step.

        Args:
            loss: `[training]`.
            lr: learning rates of each part, `[training, 1]`, float64.
            max_norm: `[training, 1]`; infinite: none.
        Returns:
            each part's gradient norm before clipping, `[training, part]`.
        """
        weights = [weight for part_weights in self.parameters.values() for weight in part_weights]
        gradients = iter(torch.autograd.grad(loss.sum(), weights))
        joined = {
            name: torch.cat([next(gradients).flatten(1) for _ in part_weights], dim=1)
            for name, part_weights in self.parameters.items()
        }
        return self._apply(joined, lr, max_norm)

    @torch.no_grad()
    def _apply(self, gradients: Mapping[str, Tensor], lr: Mapping[str, Tensor], max_norm: Tensor) -> Tensor:
        """As `step`, with the gradients of each part, `[training, weight]`; they are overwritten."""
        for optimizer in self._optimizers:
            optimizer.steps += 1
        steps = torch.tensor([[optimizer.steps] for optimizer in self._optimizers], dtype=torch.float64)
        norms = [
            part.change(gradients[name], lr[name], steps.to(max_norm.device), self._eps, max_norm)
            for name, part in self.parts.items()
        ]
        return torch.stack(norms, dim=1)
