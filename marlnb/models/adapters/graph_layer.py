"""GraphLayer: one torch_geometric convolution over the graph of the agents, as in BenchMARL's Gnn.

torch_geometric sends messages along a list of edges. In a full or an empty graph these are sums over the agent axis, so
torch alone is enough here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.network import Network


class Convolution(nn.Module, ABC):
    """One convolution per set of parameters: `[..., agent, feature]` -> `[..., network, agent, feature]`.

    Args:
        tensors: the parameters by torch_geometric's names, stacked `[network, ...]`.
        edges: `[receiver, sender]` bool.
    """

    edges: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], edges: Tensor) -> None:
        super().__init__()
        self.register_buffer("edges", edges, persistent=False)
        self.tensors = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(tensor.detach()) for name, tensor in tensors.items()}
        )

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    def linear(self, x: Tensor, name: str) -> Tensor:
        """Each network's linear map of `[..., agent, feature]`."""
        mapped = torch.einsum("...af,kof->...kao", x, self.tensors[f"{name}_weight"])
        bias = self.tensors.get(f"{name}_bias", None)
        return mapped if bias is None else mapped + bias.unsqueeze(-2)


class GraphConv(Convolution):
    """torch_geometric.nn.GraphConv: `y_i = W_rel pool_j(x_j) + W_root x_i`, over the neighbours j of agent i.

    Args:
        tensors: as in Convolution.
        edges: as in Convolution.
        pool: add, sum, mean or max; 0 if there are no neighbours.
    """

    POOLS = ("add", "sum", "mean", "max")

    def __init__(self, tensors: Mapping[str, Tensor], edges: Tensor, pool: str) -> None:
        super().__init__(tensors, edges)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self._pooled(x), "lin_rel") + self.linear(x, "lin_root")

    def _pooled(self, x: Tensor) -> Tensor:
        weights = self.edges.to(x.dtype)
        if self.pool == "max":
            largest = x.unsqueeze(-3).masked_fill(~self.edges.unsqueeze(-1), -torch.inf).amax(-2)
            return torch.where(self.edges.any(-1, keepdim=True), largest, torch.zeros_like(largest))
        total = torch.einsum("ij,...jf->...if", weights, x)
        return total / weights.sum(-1, keepdim=True).clamp(min=1) if self.pool == "mean" else total


class GATv2Conv(Convolution):
    """torch_geometric.nn.GATv2Conv: attention over the neighbours; the heads are averaged."""

    def __init__(self, tensors: Mapping[str, Tensor], edges: Tensor, negative_slope: float) -> None:
        super().__init__(tensors, edges)
        self.leaky_relu, self.softmax = nn.LeakyReLU(negative_slope), nn.Softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        attention = self.tensors["att"].squeeze(1)  # [network, head, unit]
        heads = attention.shape[1:]
        senders = self.linear(x, "lin_l").unflatten(-1, heads).movedim(-2, -3)  # [..., network, head, agent, unit]
        receivers = self.linear(x, "lin_r").unflatten(-1, heads).movedim(-2, -3)
        scores = self.leaky_relu(receivers.unsqueeze(-2) + senders.unsqueeze(-3)) * attention[:, :, None, None, :]
        weights = self.softmax(scores.sum(-1).masked_fill(~self.edges, -torch.inf))
        weights = torch.where(self.edges.any(-1, keepdim=True), weights, torch.zeros_like(weights))
        output = (weights @ senders).mean(-3)
        return output + self.tensors["bias"].unsqueeze(-2) if "bias" in self.tensors else output


class GraphLayer(Network):
    """A graph convolution that all agents share, or one per agent. Its site is `head`, the output.

    Args:
        convolution: the convolution.
        n_agents: number of agents.
        in_features: number of features of each agent.
        out_features: number of outputs of each agent.
        centralised: the output is the mean over the agents.

    Source: benchmarl.models.gnn.Gnn.
    """

    def __init__(
        self, convolution: Convolution, n_agents: int, in_features: int, out_features: int, *, centralised: bool
    ) -> None:
        super().__init__()
        self.convolution, self.output = convolution, nn.Identity()
        self.n_agents, self.out_features, self.centralised = n_agents, out_features, centralised
        self.in_features = in_features * (n_agents if centralised else 1)
        others = convolution.edges & ~torch.eye(n_agents, dtype=torch.bool)
        self.cross_agent = n_agents > 1 and (centralised or bool(others.any()))
        self.shared = next(iter(convolution.tensors.values())).shape[0] == 1
        self.shared_forward = centralised and self.shared and n_agents > 1

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`."""
        output = self.convolution(x)
        if self.centralised:
            output = output.mean(-2)
        else:
            output = output.squeeze(-3) if self.shared else output.diagonal(dim1=-3, dim2=-2).movedim(-1, -2)
        output = self.output(output)
        return output.expand(*output.shape[:-2], self.n_agents, -1), None

    def site_modules(self) -> list[SiteModule]:
        return [("head", self.output, self.out_features, "head")]
