"""Sequence: models in order, each reading the previous one's output; registered as `sequence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from marlnb.config import NETWORKS
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.networks.configs.sequence import SequenceConfig
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


@NETWORKS.register(SequenceConfig)
def build_sequence(n_agents: int, inputs: InputSpec, out_features: int, config: SequenceConfig) -> NetworkSequence:
    """The models' networks, each with the outputs of the one before as its inputs."""
    gaps = len(config.models) - 1
    widths = [*(config.widths if len(config.widths) == gaps else config.widths * gaps), out_features]
    networks = []
    for model, width in zip(config.models, widths, strict=True):
        model = replace(model, share_parameters=config.share_parameters)
        networks.append(build_network(model, n_agents, inputs, width))
        inputs = InputSpec(((width,),))
    return NetworkSequence(unique_names([model.name for model in config.models]), networks)


def unique_names(names: list[str]) -> list[str]:
    """The names, those that come more than once numbered from 1: mlp_1, gru, mlp_2."""
    return [name if names.count(name) == 1 else f"{name}_{names[:k].count(name) + 1}" for k, name in enumerate(names)]
