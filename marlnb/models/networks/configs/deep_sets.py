"""Options of DeepSets; `marlnb.models.networks.deep_sets` has the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.models.networks.configs.network import Pooling


@MODELS.register("deep_sets")
@dataclass(frozen=True)
class DeepSetsConfig(HiddenConfig):
    """A permutation-invariant network over entities: rows of an observation, or the agents that a critic reads."""

    reads_shape: ClassVar[bool] = True

    hidden: tuple[int, ...] = option(
        (64,), help="units of each hidden layer after the pool", unit="units", ge=1, le=65_536
    )
    entity_hidden: tuple[int, ...] = option(
        (64, 64), help="units of each layer for an entity", unit="units", ge=1, le=65_536
    )
    pooling: Pooling = option("mean", help="over the entities", choices=("mean", "sum", "max"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.entity_hidden:
            raise ConfigError(f"model {self.name!r}: entity_hidden needs at least one layer; got none")
