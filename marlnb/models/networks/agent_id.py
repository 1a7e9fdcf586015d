"""The agent's index as an input: how agents that share weights can still learn different things."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from marlnb.config import ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import Site, SiteModule
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec


@dataclass(frozen=True)
class NetworkConfig(ModelConfig):
    """The options of every kind of network; a subclass builds it in `network`."""

    agent_id: bool = option(False, help="append the agent's index, one-hot, to its input; for shared weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agent_id and not self.share_parameters:
            raise ConfigError(
                f"model {self.name!r}: agent_id=true distinguishes agents that share weights; "
                "it cannot be combined with share_parameters=false"
            )

    def build(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        if not self.agent_id or n_agents == 1:
            return self.network(n_agents, inputs, out_features)
        wider = replace(inputs, context=inputs.context + n_agents)
        return AgentId(self.network(n_agents, wider, out_features))

    @abstractmethod
    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        """As `build`; with `agent_id` the agent's index is already part of the inputs, as their context."""


class AgentId(Network):
    """A network that reads the agent's index, one-hot, after everything else."""

    one_hot: Tensor

    def __init__(self, inner: Network) -> None:
        super().__init__()
        self.inner = inner
        self.n_agents, self.out_features = inner.n_agents, inner.out_features
        self.in_features = inner.in_features - inner.n_agents
        self.recurrent_shape, self.cross_agent = inner.recurrent_shape, inner.cross_agent
        self.register_buffer("one_hot", torch.eye(inner.n_agents), persistent=False)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.inner(self._with_id(x), recurrent)  # type: ignore[no-any-return]

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return self.inner.sequence(self._with_id(x), recurrent, is_init, acting)

    def site_modules(self) -> list[SiteModule]:
        return self.inner.site_modules()

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        return self.inner.sites(prefix, n_agents, shared_forward=shared_forward)

    def _with_id(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.one_hot.expand(*x.shape[:-1], self.n_agents)), dim=-1)
