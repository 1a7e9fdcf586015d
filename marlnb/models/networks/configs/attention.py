"""Options of attention over entities; `marlnb.models.networks.attention` has the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.choices import Pooling
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.specs import InputSpec

if TYPE_CHECKING:
    from marlnb.models.networks.network import Network


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

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        from marlnb.models.networks.attention import AttentionNetwork

        return AttentionNetwork(n_agents, inputs, out_features, self)
