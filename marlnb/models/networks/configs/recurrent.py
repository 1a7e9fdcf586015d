"""Options of the networks that have a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import MODELS, option
from marlnb.models.networks.configs.mlp import FlatConfig

if TYPE_CHECKING:
    from marlnb.models.networks.network import Network


@dataclass(frozen=True)
class RecurrentConfig(FlatConfig):
    """The options of a recurrent network."""

    hidden: tuple[int, ...] = option(
        (64,), help="units of each hidden layer before the recurrent one", unit="units", ge=1, le=65_536
    )
    recurrent_size: int = option(64, help="units of the recurrent layer", unit="units", ge=1, le=65_536)

    @property
    def recurrent(self) -> bool:
        return True


@MODELS.register("gru")
@dataclass(frozen=True)
class GRUConfig(RecurrentConfig):
    """A recurrent network: hidden layers, then a gated recurrent unit."""

    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        from marlnb.models.networks.gru import GRU

        return GRU(n_agents, in_features, out_features, self)


@MODELS.register("lstm")
@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """A recurrent network: hidden layers, then a long short-term memory."""

    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        from marlnb.models.networks.lstm import LSTM

        return LSTM(n_agents, in_features, out_features, self)
