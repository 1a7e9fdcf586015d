"""ValueNorm: running mean and standard deviation of returns, so that a critic learns targets of unit scale."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueNorm(nn.Module):
    """Exponential moving mean and mean square of returns, corrected for the bias of their start at zero.

        m <- d m + (1 - d) mean(R)      q <- d q + (1 - d) mean(R^2)      w <- d w + (1 - d)
        mean = m / w                    std = sqrt(q / w - mean^2)

    The critic learns (R - mean) / std. The statistics are float64 scalars, shared by the group's agents. Before the
    first `update` this is the identity.

    Args:
        decay: weight `d` of the past at each update, in (0, 1).
        min_std: lower bound of the standard deviation, in units of reward.
    Source: PopArt, van Hasselt et al. 2016, section 2 (arXiv:1602.07714), as Yu et al. 2022 use it for MAPPO, section
        5.1 (arXiv:2103.01955): without PopArt's rescaling of the head at each update.
    """

    mean: Tensor
    mean_square: Tensor
    weight: Tensor

    def __init__(self, decay: float = 0.99, min_std: float = 1e-2) -> None:
        super().__init__()
        self.decay, self.min_std = decay, min_std
        for name in ("mean", "mean_square", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def update(self, returns: Tensor, counts: Tensor | None = None) -> None:
        """Adds returns `[sample]`, in units of reward; an empty tensor changes nothing.

        Args:
            counts: bool, of the same shape, which of them count; None: all. It is not read in Python.
        """
        if returns.numel() == 0:
            return
        returns = returns.detach().double()
        if counts is not None:
            weight = counts.double()
            n = weight.sum()
            rate = (1 - self.decay) * (n > 0).double()
            for buffer, values in ((self.mean, returns), (self.mean_square, returns.square())):
                buffer.add_(rate * ((values * weight).sum() / n.clamp_min(1) - buffer))
            self.weight.add_(rate * (1 - self.weight))
            return
        self.mean.lerp_(returns.mean(), 1 - self.decay)
        self.mean_square.lerp_(returns.square().mean(), 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, float32 scalars in units of reward."""
        weight = torch.where(self.weight > 0, self.weight, 1.0)
        mean = self.mean / weight
        variance = self.mean_square / weight - mean.square()
        std = variance.clamp_min(self.min_std**2).sqrt()
        return mean.float(), torch.where(self.weight > 0, std, 1.0).float()

    def normalise(self, returns: Tensor) -> Tensor:
        """Units of reward to unit scale, any shape."""
        mean, std = self.statistics()
        return (returns - mean) / std

    def denormalise(self, values: Tensor) -> Tensor:
        """Unit scale to units of reward, any shape."""
        mean, std = self.statistics()
        return values * std + mean
