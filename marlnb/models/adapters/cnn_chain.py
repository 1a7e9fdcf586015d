"""CNNChain: convolutions over each agent's image, then an MLP, as in BenchMARL's Cnn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from marlnb.models.adapters.stacked import StackedNetwork
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.network import Network


class CNNChain(Network):
    """Maps an agent's image with `trunk`, appends its other features, and maps both with `mlp`.

    Sites are those of the trunk and the MLP, numbered in one sequence: hidden_<n convolutions> is the flattened output
    of the last convolution. The images before it are not sites.

    Args:
        trunk: reads images with channels first; a centralised trunk reads all agents' images as channels.
        mlp: its agent axis has size 1 if a centralised trunk is shared: one forward pass then serves all agents.
        shape: of one image, `(x, y, channel)`, channels last; uint8 values are not scaled.
        n_others: number of features after the image.
    Source: benchmarl.models.cnn.Cnn.
    """

    def __init__(self, trunk: StackedNetwork, mlp: StackedNetwork, shape: Sequence[int], n_others: int) -> None:
        super().__init__()
        self.trunk, self.mlp, self.shape, self.n_others = trunk, mlp, tuple(shape), n_others
        self.n_agents, self.out_features = trunk.n_agents, mlp.out_features
        self.centralised, self.shared_forward = trunk.centralised, trunk.shared_forward
        self.cross_agent = trunk.cross_agent or mlp.cross_agent
        self.image_size = int(torch.Size(self.shape).numel())
        self.in_features = (self.image_size + n_others) * (self.n_agents if self.centralised else 1)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: a flattened image, then the other features."""
        x = x if x.is_floating_point() else x.float()
        image = x[..., : self.image_size].unflatten(-1, self.shape).movedim(-1, -3).flatten(-3)
        image_features, others = self.trunk(image)[0], x[..., self.image_size :]
        if self.trunk.shared_forward:
            image_features, others = image_features[..., :1, :], others.flatten(-2).unsqueeze(-2)
        output = self.mlp(torch.cat((image_features, others), dim=-1))[0]
        return output.expand(*output.shape[:-2], self.n_agents, -1), None

    def site_modules(self) -> list[SiteModule]:
        trunk_sites = self.trunk.site_modules()
        sites: list[SiteModule] = [(name, module, units, "hidden") for name, module, units, _ in trunk_sites]
        n_convolutions = len(self.trunk.layers)
        for name, module, units, kind in self.mlp.site_modules():
            stem, _, number = name.rpartition("_")
            sites.append((f"{stem}_{n_convolutions + int(number)}" if stem == "hidden" else name, module, units, kind))
        return sites
