"""Options of the networks that have a state; `marlnb.models.networks.recurrent` has the networks."""

from __future__ import annotations

from dataclasses import dataclass

from marlnb.config import MODELS, option
from marlnb.models.networks.configs.mlp import FlatConfig


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


@MODELS.register("lstm")
@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """A recurrent network: hidden layers, then a long short-term memory."""
