"""Adam over the parts of a policy, each kept as one vector: few operations a step, and a state of plain tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.errors import CheckpointError

BETAS = (0.9, 0.999)


class PartAdam:
    """Adam with a learning rate and a gradient-norm bound for each part, equal to `torch.optim.Adam` to rounding.

    Args:
        parts: modules by name, as `{"actor": ..., "critic": ...}`.
        eps: added to the root of the second moment.
    Source: Kingma and Ba 2015, algorithm 1 (arXiv:1412.6980).
    """

    def __init__(self, parts: Mapping[str, nn.Module], eps: float) -> None:
        self.parameters: dict[str, list[Tensor]] = {part: list(module.parameters()) for part, module in parts.items()}
        self.eps = eps
        self.steps = 0
        self._all = [parameter for members in self.parameters.values() for parameter in members]
        self._moments = {
            part: tuple(torch.zeros_like(nn.utils.parameters_to_vector(members).detach()) for _ in BETAS)
            for part, members in self.parameters.items()
        }

    def step(self, loss: Tensor, lr: Mapping[str, float], max_norm: float) -> Tensor:
        """One step down `loss`; returns each part's gradient norm before clipping to `max_norm` (0: none), `[part]`."""
        gradients = iter(torch.autograd.grad(loss, self._all))
        self.steps += 1
        norms = []
        with torch.no_grad():
            for part, members in self.parameters.items():
                gradient = torch.cat([next(gradients).reshape(-1) for _ in members])
                norm = torch.linalg.vector_norm(gradient)
                if max_norm > 0:
                    gradient.mul_((max_norm / (norm + 1e-6)).clamp_max_(1.0))
                change = self._change(part, gradient, lr[part]).split([parameter.numel() for parameter in members])
                torch._foreach_add_(members, [delta.view_as(p) for delta, p in zip(change, members)])
                norms.append(norm)
        return torch.stack(norms)

    def state_dict(self) -> dict[str, Any]:
        moments = {part: {"mean": m.clone(), "square": v.clone()} for part, (m, v) in self._moments.items()}
        return {"steps": self.steps, **moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError where the state is of other parameters."""
        for part, moments in self._moments.items():
            for own, name in zip(moments, ("mean", "square")):
                saved = state.get(part, {}).get(name)
                if saved is None or saved.shape != own.shape:
                    found = "nothing" if saved is None else f"{saved.numel()} values"
                    raise CheckpointError(f"optimizer state of {part!r}: found {found}, it has {own.numel()}")
                own.copy_(saved)
        self.steps = int(state["steps"])

    def _change(self, part: str, gradient: Tensor, lr: float) -> Tensor:
        mean, square = self._moments[part]
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        root = square.sqrt().div_((1 - BETAS[1] ** self.steps) ** 0.5).add_(self.eps)
        return torch.div(mean, root, out=gradient).mul_(-lr / (1 - BETAS[0] ** self.steps))
