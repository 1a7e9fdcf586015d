"""CNNChain: convolutions over each agent's image, then a perceptron, as BenchMARL's Cnn combines torchrl's two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from marlnb.models.adapters.stacked import StackedNetwork
from marlnb.models.hooks.sites import Site, SiteKind
from marlnb.models.networks.network import Network


class CNNChain(Network):
    """An agent's image, channels last, passes through `trunk`; its other features are appended before `mlp`.

    Sites are the trunk's and the perceptron's, numbered continuously: hidden_1 is the first convolution (its image is
    not a site), hidden_<n convolutions> the flattened output of the last one.

    Args:
        trunk: reads images with channels first; a centralised one reads all agents' images as channels.
        mlp: has an agent axis of 1 if a centralised trunk is shared: one forward pass then serves all agents.
        shape: of one image, `(x, y, channel)`; bytes are not scaled.
        n_others: number of features after the image.
    Source: benchmarl.models.cnn.Cnn.
    """

    def __init__(self, trunk: StackedNetwork, mlp: StackedNetwork, shape: Sequence[int], n_others: int) -> None:
        super().__init__()
        self.trunk, self.mlp, self.shape, self.n_others = trunk, mlp, tuple(shape), n_others
        self.n_agents, self.out_features = trunk.n_agents, mlp.out_features
        self.centralised, self.cross_agent = trunk.centralised, trunk.cross_agent or mlp.cross_agent
        self.image_size = int(torch.Size(self.shape).numel())
        self.in_features = (self.image_size + n_others) * (self.n_agents if self.centralised else 1)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: an image flattened, then the others."""
        x = x if x.is_floating_point() else x.float()
        image = x[..., : self.image_size].unflatten(-1, self.shape).movedim(-1, -3).flatten(-3)
        seen, others = self.trunk(image)[0], x[..., self.image_size :]
        if self.trunk.shared_forward:
            seen, others = seen[..., :1, :], others.flatten(-2).unsqueeze(-2)
        output = self.mlp(torch.cat((seen, others), dim=-1))[0]
        return output.expand(*output.shape[:-2], self.n_agents, -1), None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        return [*self._trunk_sites(), *self._mlp_sites()]

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        once = shared_forward or self.trunk.shared_forward
        return super().sites(prefix, n_agents, shared_forward=once)

    def _trunk_sites(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        return [(name, module, units, "hidden") for name, module, units, _ in self.trunk.site_modules()]

    def _mlp_sites(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        sites, before = [], len(self.trunk.layers)
        for name, module, units, kind in self.mlp.site_modules():
            start, _, number = name.rpartition("_")
            sites.append((f"{start}_{before + int(number)}" if start == "hidden" else name, module, units, kind))
        return sites
