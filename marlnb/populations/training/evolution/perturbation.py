"""Mutation of weights: units that have stopped learning start again, and some weights get Gaussian noise.

    a hidden unit is dormant if  g_i <= threshold * mean over the layer of g_j,
    where g_i is the mean magnitude of Adam's first moment over the unit's incoming weights

A dormant unit gets new incoming weights and outgoing weights of 0, with moments of 0. Then a share of the entries of
each weight matrix w of the actor becomes  w + sigma |w| e,  with e ~ N(0, 1).
Source: Liu et al. 2025 (ReGraMa), with Adam's average in the place of one batch's gradient; the noise: AgileRL 2.58.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.algorithms.learner import Learner
from marlnb.models.networks.layers import AgentLinear, HiddenLayer
from marlnb.models.networks.mlp import HiddenNetwork

SHARE = 0.1  # of the entries of a matrix


@torch.no_grad()
def perturb(learner: Learner, rng: np.random.Generator, *, sigma: float, dormant_threshold: float) -> str:
    """Changes a learner's weights; returns what was done in words."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    n_reset = 0
    for network in learner.policy.modules():
        if isinstance(network, HiddenNetwork):
            for layer, readers in _layers(network):
                n_reset += _reset_dormant(learner, layer, readers, dormant_threshold, generator)
    n_changed = 0
    for name, weight in learner.policy.named_parameters():
        if name.startswith("actor.") and weight.ndim >= 2 and name.endswith("weight") and weight.requires_grad:
            chosen = torch.rand(weight.shape, generator=generator) < SHARE
            noise = torch.randn(weight.shape, generator=generator) * sigma
            weight.add_((noise * chosen).to(weight) * weight.abs())
            n_changed += int(chosen.sum())
    return f"{n_reset} dormant units reset, {n_changed} weights of the actor changed"


def _layers(network: HiddenNetwork) -> Iterator[tuple[AgentLinear, list[AgentLinear]]]:
    """Each hidden layer's affine map, and those that read it."""
    maps = [layer.linear for layer in network.hidden if isinstance(layer, HiddenLayer)]
    return zip(maps, [*([each] for each in maps[1:]), network.readers()])


def _reset_dormant(
    learner: Learner,
    layer: AgentLinear,
    readers: Sequence[AgentLinear],
    threshold: float,
    generator: torch.Generator,
) -> int:
    """Resets the dormant units of one layer; returns how many."""
    moments = [m for optimizer in learner.optimizers.values() if (m := moments_of(optimizer, layer.weight)) is not None]
    if not moments or not layer.shared or not float(moments[0][0].abs().sum()):
        return 0
    gradient = moments[0][0].abs().mean(-1)
    dormant = gradient <= threshold * gradient.mean()
    n_dormant = int(dormant.sum())
    if n_dormant:
        std = layer.weight[~dormant].std()
        layer.weight[dormant] = (torch.randn(n_dormant, layer.in_features, generator=generator)).to(std) * std
        layer.bias[dormant] = 0.0
        outgoing = [reader.weight for reader in readers]
        for weight in outgoing:
            weight[..., dormant] = 0.0
        for optimizer in learner.optimizers.values():
            for tensor in (layer.weight, layer.bias):
                for moment in moments_of(optimizer, tensor) or ():
                    moment[dormant] = 0.0
            for weight in outgoing:
                for moment in moments_of(optimizer, weight) or ():
                    moment[..., dormant] = 0.0
    return n_dormant


def moments_of(optimizer: PartAdam, parameter: nn.Parameter | Tensor) -> tuple[Tensor, Tensor] | None:
    """Views of Adam's two moments of one parameter, in its shape; None: it trains none."""
    for part, parameters in optimizer.parameters.items():
        start = 0
        for weight in parameters:
            if weight is parameter:
                mean, square = optimizer.moments[part]
                stop = start + weight.numel()
                return mean[start:stop].view_as(weight), square[start:stop].view_as(weight)
            start += weight.numel()
    return None
