"""Rebuilds BenchMARL's Gnn: the supported convolutions and graphs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.adapters.graph_layer import Convolution, GATv2Conv, GraphConv, GraphLayer
from marlnb.models.adapters.safe_unpickle import Record

GRAPHS = ("full", "empty")
OPTIONS = {
    "GraphConv": {"aggr", "bias"},
    "GATv2Conv": {"heads", "concat", "negative_slope", "add_self_loops", "bias", "dropout", "share_weights"},
}


def graph_layer(
    model: Record, tensors: Mapping[str, Tensor], n_agents: int, n_features: int, *, central: bool, where: str
) -> GraphLayer:
    """One graph convolution over the agents.

    Args:
        model: the GnnConfig.
        tensors: by torch_geometric's names, `[network, ...]`.
        n_agents: number of agents.
        n_features: number of features of each agent.
        central: the layer belongs to a central critic, whose output is the mean over the agents.
        where: the network's name in messages.
    Raises:
        CheckpointError: tensors are missing, or are for another number of agents.
        ConfigError: the convolution, option or graph is not supported; the message lists the supported ones.
    """
    topology, kind = model.get("topology"), getattr(model.get("gnn_class"), "home", "").rpartition(".")[2]
    if topology not in GRAPHS or model.get("position_key") or model.get("velocity_key"):
        raise ConfigError(
            f"{where} has a graph with topology={topology!r}, position_key={model.get('position_key')!r} and "
            f"velocity_key={model.get('velocity_key')!r}; edge features are not supported; valid: topology "
            f"{' and '.join(GRAPHS)} without such keys"
        )
    if kind not in OPTIONS:
        raise ConfigError(f"{where} has graph convolution {kind!r}; valid: torch_geometric's {', '.join(OPTIONS)}")
    options = dict(model.get("gnn_kwargs") or {})
    for name in ("in_channels", "out_channels"):
        options.pop(name, None)
    unknown = sorted(set(options) - OPTIONS[kind])
    if unknown:
        raise ConfigError(f"{where} has {kind} with the options {unknown}; valid: {sorted(OPTIONS[kind])}")
    try:
        edges = torch.full((n_agents, n_agents), topology == "full")
        edges.fill_diagonal_(bool(model.get("self_loops")))
        convolution = _convolution(kind, options, dict(tensors), edges, where)
        weight = tensors["lin_rel.weight" if kind == "GraphConv" else "lin_l.weight"]
        n_outputs = convolution(torch.zeros(1, n_agents, n_features)).shape[-1]
    except KeyError as error:
        raise CheckpointError(f"{where} has the tensors {sorted(tensors)}; {kind} also needs {error}") from error
    if len(weight) not in (1, n_agents):
        raise CheckpointError(f"{where} has parameters of {len(weight)} agents; the environment's group has {n_agents}")
    return GraphLayer(convolution, n_agents, n_features, n_outputs, centralised=central)


def _convolution(kind: str, options: dict, tensors: dict[str, Tensor], edges: Tensor, where: str) -> Convolution:
    if kind == "GraphConv":
        pool = str(options.get("aggr", "add"))
        if pool not in GraphConv.POOLS:
            raise ConfigError(f"{where} aggregates messages with aggr={pool!r}; valid: {', '.join(GraphConv.POOLS)}")
        return GraphConv(tensors, edges, pool)
    if options.get("concat", True) and options.get("heads", 1) > 1:
        raise ConfigError(f"{where} has {options['heads']} concatenated heads; valid: heads=1, or concat=False")
    if options.get("add_self_loops", True):
        edges = edges.clone().fill_diagonal_(True)
    return GATv2Conv(tensors, edges, float(options.get("negative_slope", 0.2)))
