"""ValueNorm: running mean and standard deviation of returns, so that a critic learns targets of unit scale."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueNorm(nn.Module):
    """Exponential moving mean and mean square of returns, with the bias of the start removed.

    Statistics are float64 scalars common to the group's agents. Until the first `update` it is the identity.

    Args:
        decay: weight of the past at each update, in (0, 1).
        smallest_std: below this the standard deviation counts as this, in units of reward.
    Source: Yu et al. 2022, The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games, section 5.1
        (arXiv:2103.01955), without PopArt's correction of the head.
    """

    mean: Tensor
    mean_square: Tensor
    weight: Tensor

    def __init__(self, decay: float = 0.99, smallest_std: float = 1e-2) -> None:
        super().__init__()
        self.decay, self.smallest_std = decay, smallest_std
        for name in ("mean", "mean_square", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def update(self, returns: Tensor) -> None:
        """Takes in returns `[sample]`, in units of reward; an empty tensor changes nothing."""
        if returns.numel() == 0:
            return
        returns = returns.detach().double()
        self.mean.lerp_(returns.mean(), 1 - self.decay)
        self.mean_square.lerp_(returns.square().mean(), 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, float32 scalars in units of reward."""
        weight = torch.where(self.weight > 0, self.weight, 1.0)
        mean = self.mean / weight
        variance = self.mean_square / weight - mean.square()
        std = variance.clamp_min(self.smallest_std**2).sqrt()
        return mean.float(), torch.where(self.weight > 0, std, 1.0).float()

    def normalise(self, returns: Tensor) -> Tensor:
        mean, std = self.statistics()
        return (returns - mean) / std

    def denormalise(self, values: Tensor) -> Tensor:
        mean, std = self.statistics()
        return values * std + mean
