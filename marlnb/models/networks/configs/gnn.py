"""Options of the GNN; `marlnb.models.networks.gnn` has the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.specs import InputSpec

Messages = Literal["gatv2", "graph"]


@MODELS.register("gnn")
@dataclass(frozen=True)
class GNNConfig(HiddenConfig):
    """Agents of a group exchange messages: an agent's output depends on the others' observations."""

    hidden: tuple[int, ...] = option(
        (64,), help="units of each hidden layer before the first round", unit="units", ge=1, le=65_536
    )
    rounds: tuple[int, ...] = option((64,), help="units of each round of messages", unit="units", ge=1, le=65_536)
    messages: Messages = option("gatv2", help="weighted by attention, or summed", choices=("gatv2", "graph"))
    heads: int = option(4, help="attention heads of gatv2; the units are divided among them", ge=1, le=65_536)
    n_neighbors: int = option(
        0, help="number of nearest agents from which each one receives messages; 0: all", unit="agents", ge=0
    )
    positions: tuple[int, ...] = option((), help="the observation's features that are the agent's position", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"model {self.name!r}"
        if not self.rounds:
            raise ConfigError(f"{where}: rounds needs at least one; got none")
        if self.messages == "gatv2" and any(units % self.heads for units in self.rounds):
            raise ConfigError(f"{where}: heads={self.heads} must divide the units of each round; got {self.rounds}")
        if bool(self.n_neighbors) != bool(self.positions):
            raise ConfigError(
                f"{where}: the nearest agents are found by positions; give both n_neighbors and positions or neither; "
                f"got n_neighbors={self.n_neighbors}, positions={self.positions}"
            )

    def check_inputs(self, inputs: InputSpec) -> None:
        if len(inputs.parts) > 1:
            raise ConfigError(
                f"model {self.name!r} passes messages between agents with one observation each; got "
                f"{len(inputs.parts)} parts for each agent, as of a centralised critic. "
                "Give it another network: critic=mlp, critic=deep_sets or critic=attention"
            )
        beyond = [feature for feature in self.positions if feature >= inputs.sizes[0]]
        if beyond:
            raise ConfigError(f"model {self.name!r}: positions {beyond}; observations have 0 to {inputs.sizes[0] - 1}")
