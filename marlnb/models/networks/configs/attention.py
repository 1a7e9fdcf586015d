"""Options of attention over entities; `marlnb.models.networks.attention` has the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.models.networks.configs.network import Pooling


@MODELS.register("attention")
@dataclass(frozen=True)
class AttentionConfig(HiddenConfig):
    """Self-attention over entities: rows of an observation, or the agents that a centralised critic sees."""

    reads_shape: ClassVar[bool] = True

    hidden: tuple[int, ...] = option(
        (64,), help="units of each hidden layer after the pool", unit="units", ge=1, le=65_536
    )
    units: int = option(64, help="units of an entity's embedding", unit="units", ge=1, le=65_536)
    heads: int = option(4, help="attention heads; the units are divided among them", ge=1, le=65_536)
    pooling: Pooling = option("mean", help="over the entities", choices=("mean", "sum", "max"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.units % self.heads:
            raise ConfigError(f"model {self.name!r}: heads={self.heads} must divide units={self.units}")
