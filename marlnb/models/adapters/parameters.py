"""Maps the output of another library's network to the parameters of marlnb's distributions."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, unknown
from marlnb.models.policies.distributions import (
    ActionDistribution,
    Deterministic,
    Gaussian,
    Sample,
    action_distribution,
)
from marlnb.specs import ActionSpec

Kind = Literal["categorical", "greedy", "tanh_normal", "normal", "tanh", "direct"]


class FreeGaussian(Gaussian):
    """A Gaussian whose log_std is the network's output, without bounds.

    With squash "clip", the action bounds are scaled to `[-1, 1]`.
    """

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.split(self.n_components, -1)
        return mean, log_std


class Direct(Deterministic):
    """The network's output is the action, in the environment's units, clipped to the bounds."""

    def __init__(self, low: tuple[float, ...], high: tuple[float, ...]) -> None:
        super().__init__(low, high)
        self._low, self._high = torch.tensor(low), torch.tensor(high)

    def mode(self, parameters: Tensor) -> Sample:
        low, high = self._low.to(parameters.device), self._high.to(parameters.device)
        action = parameters.clamp(low, high)
        return Sample(action, action, parameters.new_zeros(parameters.shape[:-1]))


class LocScale(nn.Module):
    """Maps concatenated (loc, scale) to (mean, log_std) for `FreeGaussian`.

    Args:
        extractor: maps the output to (loc, scale), as torchrl's NormalParamExtractor does; None: the two halves.
        log_scale: the second half is log(scale).
        units: of a clipped normal: the action whose bounds are scaled to `[-1, 1]`; None: no scaling.
        upscale: torchrl's tanh_loc: `loc = upscale * tanh(loc / upscale)`; None: no bound.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        extractor: nn.Module | None = None,
        *,
        log_scale: bool = False,
        units: ActionSpec | None = None,
        upscale: float | None = None,
    ) -> None:
        super().__init__()
        self.extractor, self.log_scale, self.upscale = extractor, log_scale, upscale
        self.register_buffer("low", torch.tensor(units.low if units is not None else (-1.0,)), persistent=False)
        self.register_buffer("high", torch.tensor(units.high if units is not None else (1.0,)), persistent=False)

    def forward(self, output: Tensor) -> Tensor:
        loc, scale = self.extractor(output) if self.extractor is not None else output.chunk(2, -1)
        if self.upscale is not None:
            loc = (loc / self.upscale).tanh() * self.upscale
        half, middle = (self.high - self.low) / 2, (self.high + self.low) / 2
        log_std = scale if self.log_scale else scale.log()
        return torch.cat(((loc - middle) / half, log_std - half.log()), dim=-1)


class Shifted(nn.Module):
    """Adds the midpoint of the bounds to the output, as torchrl's TanhDelta does before the tanh."""

    middle: Tensor

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        middle = (torch.tensor(action.low) + torch.tensor(action.high)) / 2
        self.register_buffer("middle", middle, persistent=False)

    def forward(self, output: Tensor) -> Tensor:
        return output + self.middle


def tanh_delta(action: ActionSpec) -> tuple[ActionDistribution, nn.Module | None]:
    """torchrl's TanhDelta for an action's bounds, and the module that maps a network's output to its parameters."""
    shifted = Shifted(action)
    return Deterministic(action.low, action.high), shifted if shifted.middle.any() else None


def distribution_of(kind: Kind, action: ActionSpec) -> tuple[ActionDistribution, nn.Module | None, bool]:
    """A distribution, the module that maps a network's output to its parameters, and whether it is greedy.

    Args:
        kind: discrete actions: categorical (logits) or greedy (Q values; the largest is chosen). Continuous actions:
            tanh_normal (concatenated mean and log_std), normal (the same, in the environment's units, clipped), tanh
            (the tanh of the output, scaled to the bounds) or direct (the output is the action).
        action: the group's action.
    Raises:
        ConfigError: the kind is unknown, or does not fit the actions.
    """
    if kind not in get_args(Kind):
        raise ConfigError(unknown("distribution", str(kind), get_args(Kind)))
    continuous = action.kind == "continuous"
    if continuous == (kind in ("categorical", "greedy")):
        valid = ("tanh_normal", "normal", "tanh", "direct") if continuous else ("categorical", "greedy")
        raise ConfigError(f"distribution {kind!r} does not fit {action.kind} actions; valid: {', '.join(valid)}")
    if not continuous:
        if kind == "greedy" and action.kind != "discrete":
            raise ConfigError(f"distribution 'greedy' needs discrete actions; got {action.kind} actions")
        return action_distribution(action), None, kind == "greedy"
    if kind == "tanh":
        return Deterministic(action.low, action.high), None, False
    if kind == "direct":
        return Direct(action.low, action.high), None, False
    squash: Literal["tanh", "clip"] = "tanh" if kind == "tanh_normal" else "clip"
    scaled = LocScale(log_scale=True, units=action if kind == "normal" else None)
    return FreeGaussian(action.low, action.high, squash), scaled, False
