"""Sequence: models in order, each reading the previous one's output; registered as `sequence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from marlnb.config import MODELS, ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.agent_id import NetworkConfig
from marlnb.models.networks.gru import GRUConfig
from marlnb.models.networks.mlp import MLPConfig
from marlnb.models.networks.network import Network, NetworkList
from marlnb.models.networks.packing import pad, stacked_shape, unpad
from marlnb.specs import InputSpec

Run = Callable[[Network, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


class NetworkSequence(Network):
    """Networks in order. The recurrent state holds the layers of each recurrent one, in that order."""

    def __init__(self, names: Sequence[str], networks: Sequence[Network]) -> None:
        super().__init__()
        self.names = list(names)
        self.networks = NetworkList(networks)
        self.n_agents = networks[0].n_agents
        self.in_features, self.out_features = networks[0].in_features, networks[-1].out_features
        self.recurrent_shape = stacked_shape([network.recurrent_shape for network in networks])
        self.cross_agent = any(network.cross_agent for network in networks)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self._in_order(lambda network, x, entering: network(x, entering), x, recurrent)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return self._in_order(lambda network, x, entering: network.sequence(x, entering, is_init, acting), x, recurrent)

    def site_modules(self) -> list[SiteModule]:
        last = self.networks[-1]
        return [
            (f"{name}/{layer}", module, n_units, "hidden" if kind == "head" and network is not last else kind)
            for name, network in zip(self.names, self.networks)
            for layer, module, n_units, kind in network.site_modules()
        ]

    def _in_order(self, run: Run, x: Tensor, recurrent: Tensor | None) -> tuple[Tensor, Tensor | None]:
        leaving: list[Tensor] = []
        first_layer = 0
        for network in self.networks:
            shape = network.recurrent_shape
            if shape is None or self.recurrent_shape is None:
                x, _ = run(network, x, None)
                continue
            entering = None if recurrent is None else unpad(recurrent, shape, first_layer)
            x, after = run(network, x, entering)
            assert after is not None
            leaving.append(pad(after, (shape[0], self.recurrent_shape[1])))
            first_layer += shape[0]
        return x, torch.cat(leaving, dim=-2) if leaving else None


@MODELS.register("sequence")
@dataclass(frozen=True)
class SequenceConfig(NetworkConfig):
    """Models in order, as [cnn,gru]: each reads what the one before puts out."""

    models: tuple[ModelConfig, ...] = option(
        (MLPConfig(hidden=(64,)), GRUConfig(hidden=())), help="the models: names, or {name: gru, recurrent_size: 32}"
    )
    widths: tuple[int, ...] = option(
        (64,), help="outputs of each model but the last; one value for all, or one each", unit="units", ge=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        gaps = len(self.models) - 1
        if gaps < 0:
            raise ConfigError(f"model {self.name!r}: models needs at least one; got none")
        if len(self.widths) not in (1, gaps):
            raise ConfigError(
                f"model {self.name!r}: widths has one value, or one for each of the {gaps} models before the last; "
                f"got {self.widths}"
            )
        for k, model in enumerate(self.models):
            for option_name in ("share_parameters", "agent_id"):
                if getattr(model, option_name, None) not in (None, getattr(type(model), option_name, None)):
                    raise ConfigError(
                        f"model {self.name!r}: models[{k}] has {option_name}={getattr(model, option_name)}; "
                        f"say {option_name} of the sequence, which holds for all its models"
                    )

    @property
    def recurrent(self) -> bool:
        return any(model.recurrent for model in self.models)

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        gaps = len(self.models) - 1
        widths = [*(self.widths if len(self.widths) == gaps else self.widths * gaps), out_features]
        networks = []
        for model, width in zip(self.models, widths, strict=True):
            networks.append(replace(model, share_parameters=self.share_parameters).build(n_agents, inputs, width))
            inputs = InputSpec(((width,),))
        return NetworkSequence(unique_names([model.name for model in self.models]), networks)


def unique_names(names: list[str]) -> list[str]:
    """The names, those that come more than once numbered from 1: mlp_1, gru, mlp_2."""
    return [name if names.count(name) == 1 else f"{name}_{names[:k].count(name) + 1}" for k, name in enumerate(names)]
