"""Adam over named groups of parameters, whose whole state is plain tensors by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.errors import CheckpointError


class NamedAdam:
    """Adam with a learning rate and a gradient-norm bound for each part of a policy.

    Args:
        parts: modules by name, as `{"actor": ..., "critic": ...}`.
        lr: learning rate by part; eps: Adam's epsilon.
    """

    def __init__(self, parts: Mapping[str, nn.Module], lr: Mapping[str, float], eps: float) -> None:
        self.named = {part: dict(module.named_parameters()) for part, module in parts.items()}
        groups = [{"params": list(named.values()), "lr": lr[part]} for part, named in self.named.items()]
        self._adam = torch.optim.Adam(groups, eps=eps, fused=True)

    def set_lr(self, lr: Mapping[str, float]) -> None:
        for part, group in zip(self.named, self._adam.param_groups):
            group["lr"] = lr[part]

    def step(self, loss: Tensor, max_norm: float) -> Tensor:
        """One step down `loss`; returns each part's gradient norm before clipping to `max_norm` (0: none), `[part]`."""
        self._adam.zero_grad(set_to_none=True)
        loss.backward()
        norms = [clip_norm(list(named.values()), max_norm) for named in self.named.values()]
        self._adam.step()
        return torch.stack(norms)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Adam's moments and step count by `<part>.<parameter>`; empty for a parameter that has not been stepped."""
        return {
            f"{part}.{name}": {key: value.clone() for key, value in self._adam.state.get(parameter, {}).items()}
            for part, named in self.named.items()
            for name, parameter in named.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises CheckpointError where the state is of other parameters."""
        own = {f"{part}.{name}": p for part, named in self.named.items() for name, p in named.items()}
        if set(own) != set(state):
            raise CheckpointError(f"optimizer state of other parameters: {sorted(set(own) ^ set(state))}")
        self._adam.state.clear()
        for name, parameter in own.items():
            if state[name]:
                self._adam.state[parameter] = {
                    key: value.clone().to(
                        "cpu" if key == "step" and parameter.device.type == "cpu" else parameter.device
                    )
                    for key, value in state[name].items()
                }


def clip_norm(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """Scales the gradients so that their joint 2-norm is at most `max_norm` (0: leaves them); returns it as it was."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack(torch._foreach_norm(gradients)).norm()
    if max_norm > 0:
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp_max(1.0))
    return norm
