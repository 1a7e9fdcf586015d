"""The options of every kind of network, and choices that several kinds have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from marlnb.config import NETWORKS, ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.specs import InputSpec

if TYPE_CHECKING:
    from marlnb.models.networks.network import Network

ActivationName = Literal["tanh", "relu", "elu", "gelu", "silu"]
Pooling = Literal["mean", "sum", "max"]
"""Over the entities of a set."""


@dataclass(frozen=True)
class NetworkConfig(ModelConfig):
    """The options of every kind of network; `NETWORKS` has the network of each."""

    precision: Literal["float32", "bfloat16"] = option(
        "float32",
        help="of the network's products and hidden units; its weights, inputs and outputs are always float32. bfloat16 "
        "is faster on GPUs and on processors that have instructions for it",
        choices=("float32", "bfloat16"),
    )
    agent_id: bool = option(False, help="append the agent's index, one-hot, to its input; for shared weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agent_id and not self.share_parameters:
            raise ConfigError(
                f"model {self.name!r}: agent_id=true distinguishes agents that share weights; "
                "it cannot be combined with share_parameters=false"
            )

    def build(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        if self.precision == "float32":
            return self._with_agent_id(n_agents, inputs, out_features)
        from marlnb.models.networks.low_precision import LowPrecision

        return LowPrecision(self._with_agent_id(n_agents, inputs, out_features))

    def _with_agent_id(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        if not self.agent_id or n_agents == 1:
            return self.network(n_agents, inputs, out_features)
        from marlnb.models.networks.agent_id import AgentId

        wider = replace(inputs, context=inputs.context + n_agents)
        return AgentId(self.network(n_agents, wider, out_features))

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        """As `build`; with `agent_id` the agent's index is already part of the inputs, as their context."""
        self.check_inputs(inputs)
        return NETWORKS.of(self)(n_agents, inputs, out_features, self)

    def check_inputs(self, inputs: InputSpec) -> None:
        """Raises ConfigError if this kind of network cannot read inputs of this shape."""
