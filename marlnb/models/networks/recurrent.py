"""Base of the configurations of recurrent networks: hidden layers, then one recurrent layer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from marlnb.config import option
from marlnb.models.networks.mlp import FlatConfig, check_sizes
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec


@dataclass(frozen=True)
class RecurrentConfig(FlatConfig):
    """The options of a recurrent network; a subclass builds it in `assemble`."""

    hidden: tuple[int, ...] = option((64,), help="units of each hidden layer before the recurrent one", unit="units")
    recurrent_size: int = option(64, help="units of the recurrent layer", unit="units", ge=1)

    @property
    def recurrent(self) -> bool:
        return True

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        self.check_flat(inputs)
        sizes = {"inputs": (inputs.features,), "out_features": (out_features,)}
        check_sizes(self.name, hidden=self.hidden, recurrent_size=(self.recurrent_size,), **sizes)
        return self.assemble(n_agents, inputs.features, out_features)

    @abstractmethod
    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        """The network, its sizes checked: `[..., n_agents, in_features]` to `[..., n_agents, out_features]`."""
