"""BenchMARL's Gnn rebuilt: which convolutions, over which graphs, can be read."""

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
    """One convolution of agents' features.

    Args:
        tensors: by torch_geometric's names, `[network, ...]`.
        central: it is a critic's whose output is the mean over the agents.
    Raises:
        ConfigError: a convolution, option or graph that cannot be read; the message says which can.
    """
    topology, kind = model.get("topology"), getattr(model.get("gnn_class"), "home", "").rpartition(".")[2]
    if topology not in GRAPHS or model.get("position_key") or model.get("velocity_key"):
        raise ConfigError(
            f"{where} has a graph of topology {topology!r} over the keys {model.get('position_key')!r} and "
            f"{model.get('velocity_key')!r}, and edges that carry what lies between two agents cannot be read; valid: "
            f"topology {' and '.join(GRAPHS)} without such keys"
        )
    if kind not in OPTIONS:
        raise ConfigError(f"{where} has graph convolutions {kind!r}; valid: torch_geometric's {', '.join(OPTIONS)}")
    options = dict(model.get("gnn_kwargs") or {})
    for name in ("in_channels", "out_channels"):
        options.pop(name, None)
    unknown = sorted(set(options) - OPTIONS[kind])
    if unknown:
        raise ConfigError(f"{where} has {kind} with the options {unknown}; valid: {sorted(OPTIONS[kind])}")
    try:
        edges = torch.full((n_agents, n_agents), topology == "full")
        edges.fill_diagonal_(bool(model.get("self_loops")))
        made = _convolution(kind, options, dict(tensors), edges, where)
        weight = tensors["lin_rel.weight" if kind == "GraphConv" else "lin_l.weight"]
        n_outputs = made(torch.zeros(1, n_agents, n_features)).shape[-1]
    except KeyError as error:
        raise CheckpointError(f"{where} has the tensors {sorted(tensors)}; {kind} has {error} too") from error
    if len(weight) not in (1, n_agents):
        raise CheckpointError(f"{where} is of {len(weight)} agents; the environment's group has {n_agents}")
    return GraphLayer(made, n_agents, n_features, n_outputs, centralised=central)


def _convolution(kind: str, options: dict, tensors: dict[str, Tensor], edges: Tensor, where: str) -> Convolution:
    if kind == "GraphConv":
        pool = str(options.get("aggr", "add"))
        if pool not in GraphConv.POOLS:
            raise ConfigError(f"{where} pools messages by {pool!r}; valid: {', '.join(GraphConv.POOLS)}")
        return GraphConv(tensors, edges, pool)
    if options.get("concat", True) and options.get("heads", 1) > 1:
        raise ConfigError(f"{where} has {options['heads']} heads side by side; valid: one, or concat=False")
    if options.get("add_self_loops", True):
        edges = edges.clone().fill_diagonal_(True)
    return GATv2Conv(tensors, edges, float(options.get("negative_slope", 0.2)))
