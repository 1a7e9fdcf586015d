"""Rebuilds BenchMARL's networks from a model's configuration and a checkpoint's tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrl.modules import MLP, ConvNet

from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.adapters.benchmarl_blocks import POOLS, CNNChain, PooledSets
from marlnb.models.adapters.benchmarl_graphs import graph_layer
from marlnb.models.adapters.memory import Kind, StackedMemory
from marlnb.models.adapters.safe_unpickle import Record
from marlnb.models.adapters.sequential import SequentialNetwork
from marlnb.models.adapters.stacked import StackedNetwork, assemble, below, layer_of
from marlnb.models.networks.network import Network

Tensors = Mapping[str, Tensor]
MEMORIES: dict[str, Kind] = {"GruConfig": "gru", "LstmConfig": "lstm"}
FIRST_PART = {"MlpConfig": "mlp", "CnnConfig": "cnn", **MEMORIES}


@dataclass(frozen=True)
class NetworkInput:
    """The input of a network.

    Attributes:
        n_agents: number of rows.
        shape: of each row's array.
        n_others: number of features after the array, such as an action's.
        equal_rows: all rows are equal, such as the environment's state.
        central: the output is for all agents; a graph convolution's weights do not show this.
    """

    n_agents: int
    shape: tuple[int, ...]
    n_others: int = 0
    equal_rows: bool = False
    central: bool = False

    @property
    def n_features(self) -> int:
        return int(torch.Size(self.shape).numel()) + self.n_others


def network(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    """A network with a checkpoint's tensors.

    Args:
        model: the model's configuration.
        tensors: the network's parameters by name.
        given: each agent's input; a network that reads `n_agents` times as many features is central.
        where: the network's name in messages.
    Raises:
        CheckpointError: tensors are missing, or do not fit the configuration.
        ConfigError: the network is not supported.
    """
    if model.kind not in BUILDERS:
        raise ConfigError(f"model {model.kind} is not supported; valid: {', '.join(BUILDERS)}")
    return BUILDERS[model.kind](model, tensors, given, where)


def group_model(model: Record, group: str) -> Record:
    """The group's model: an EnsembleModelConfig has one per group."""
    if model.kind != "EnsembleModelConfig":
        return model
    models: dict[str, Record] = model.get("model_configs_map")
    if group not in models:
        raise ConfigError(f"no model for group {group!r} in this EnsembleModelConfig; it has {sorted(models)}")
    return models[group]


def n_reading_one(model: Record, tensors: Tensors, given: NetworkInput) -> int:
    """The number of networks that read one array for all agents, such as the state; 0: they read the agents' rows."""
    while model.kind == "SequenceModelConfig":
        model, tensors = model.get("model_configs")[0], _sequence_tensors(tensors)[0]
    if model.kind in FIRST_PART:
        return _part(tensors, FIRST_PART[model.kind])[1]
    if model.kind == "DeepsetsConfig" and not _part(tensors, "local_deepsets")[0]:
        global_tensors, n_listed = _part(tensors, "global_deepsets")
        return 0 if global_tensors["local_nn.0.weight"].shape[-1] == given.n_features else n_listed
    return 0


def first_size(tensors: Tensors) -> int:
    """The number of input features of the first linear map."""
    return next(tensor for name, tensor in tensors.items() if name.endswith(("0.weight_ih", "0.weight"))).shape[-1]


def subtree(tensors: Tensors, path: str) -> dict[str, Tensor]:
    """The tensors below a dotted path, by their names relative to it."""
    return {
        name[len(path) + 1 :]: tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{path}.") and isinstance(tensor, Tensor)
    }


def _perceptron(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    return _chain(model, "", _part(tensors, "mlp")[0], given.n_agents, given.n_features, where)


def _recurrent(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    memory = _memory(model, tensors, given.n_agents, given.n_features, where)
    chain = _part(tensors, "mlp")[0]
    return SequentialNetwork([memory, _chain(model, "mlp_", chain, given.n_agents, memory.out_features, where)])


def _convolutional(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    if len(given.shape) != 3:
        raise ConfigError(f"{where} reads images [x, y, channel]; the environment gives {list(given.shape)}")
    conv_tensors, _ = _part(tensors, "cnn")
    if "0.weight" not in conv_tensors:
        raise CheckpointError(f"{where} has no tensors of convolutions; it has {sorted(tensors)[:8]}")
    weight, n_channels, n_agents = conv_tensors["0.weight"], given.shape[-1], given.n_agents
    n_inputs, shared = weight.shape[-3], weight.ndim == 4
    if n_inputs not in (n_channels, n_channels * n_agents) or not (shared or len(weight) == n_agents):
        raise ConfigError(f"{where} reads {n_inputs} channels; the environment gives {n_agents} agents {n_channels}")
    layers, names = _convolutions(model, n_inputs)
    _check_names(names, conv_tensors, where)
    agent_layers = [
        layer_of(layer, below(conv_tensors, str(index)), n_agents, shared) for index, layer in enumerate(layers)
    ]
    central = n_inputs != n_channels
    trunk = assemble(agent_layers, n_agents, (n_inputs, *given.shape[:2]), centralised=central, shared=shared)
    shared_forward = trunk.shared_forward
    n_read = trunk.out_features + given.n_others * (n_agents if shared_forward else 1)
    mlp = _chain(model, "mlp_", _part(tensors, "mlp")[0], 1 if shared_forward else n_agents, n_read, where)
    return CNNChain(trunk, mlp, given.shape, given.n_others)


def _deepsets(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    aggr = str(model.get("aggr"))
    if aggr not in POOLS:
        raise ConfigError(f"{where} has aggr={aggr!r}, which is not supported; valid: {', '.join(POOLS)}")
    local_tensors, _ = _part(tensors, "local_deepsets")
    global_tensors, n_listed = _part(tensors, "global_deepsets")
    parts: list[Network] = []
    for set_tensors, rows in ((local_tensors, given.n_agents), (global_tensors, n_listed)):
        if not set_tensors:
            continue
        by_agent = set_tensors is global_tensors and not given.equal_rows
        if not by_agent and len(given.shape) != 2:
            raise ConfigError(f"{where} reads sets [element, feature]; the environment gives {list(given.shape)}")
        n_each = given.shape[-1] if not by_agent else parts[0].out_features if parts else given.n_features
        n_others = 0 if by_agent else given.n_others
        local_nn = _chain(model, "local_nn_", subtree(set_tensors, "local_nn"), rows, n_each, where)
        global_nn = _chain(
            model, "global_nn_", subtree(set_tensors, "global_nn"), rows, local_nn.out_features + n_others, where
        )
        shape = None if by_agent else given.shape
        parts.append(PooledSets(local_nn, global_nn, aggr, shape=shape, n_others=n_others, n_agents=given.n_agents))
    if not parts:
        raise CheckpointError(f"{where} has no weights")
    return parts[0] if len(parts) == 1 else SequentialNetwork(parts)


def _gnn(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    graph_tensors, n_listed = _part(tensors, "gnns")
    if n_listed == 1:
        graph_tensors = {name: tensor.unsqueeze(0) for name, tensor in graph_tensors.items()}
    return graph_layer(model, graph_tensors, given.n_agents, given.n_features, central=given.central, where=where)


def _sequence(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    parts: list[Network] = []
    for config, model_tensors in zip(model.get("model_configs"), _sequence_tensors(tensors), strict=True):
        if parts:
            n_listed = _part(model_tensors, FIRST_PART[config.kind])[1] if config.kind in FIRST_PART else 0
            given = NetworkInput(n_listed or given.n_agents, (parts[-1].out_features,))
        parts.append(network(config, model_tensors, given, where))
    return SequentialNetwork(parts)


BUILDERS: dict[str, Callable[[Record, Tensors, NetworkInput, str], Network]] = {
    "MlpConfig": _perceptron,
    "GruConfig": _recurrent,
    "LstmConfig": _recurrent,
    "CnnConfig": _convolutional,
    "DeepsetsConfig": _deepsets,
    "GnnConfig": _gnn,
    "SequenceModelConfig": _sequence,
}


def _sequence_tensors(tensors: Tensors) -> list[dict[str, Tensor]]:
    """The tensors of each model of a sequence."""
    models: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r".*?models\.module\.(\d+)\.(.+)", name)
        if match is not None:
            models.setdefault(int(match[1]), {})[match[2]] = tensor
    return [models[index] for index in sorted(models)]


def _part(tensors: Tensors, part: str) -> tuple[dict[str, Tensor], int]:
    """The tensors of `part` by name, such as `0.weight`, and the length of its list of networks; 0: there is no list.

    BenchMARL stacks the agents' networks in `<part>.params`. Networks that read one vector for all agents, such as
    central critics, are a list; so are all networks of sets and graphs. The tensors of a list are stacked here.
    """
    by_name: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(rf"(?:.*\.)?{part}\.(params|\d+)\.(.+)", name)
        if match is not None:
            by_name.setdefault(match[2], {})[match[1]] = tensor
    listed = {which for by_network in by_name.values() for which in by_network} - {"params"}
    joined = {}
    for name, by_network in by_name.items():
        stack = [by_network[which] for which in sorted(by_network, key=lambda which: (len(which), which))]
        joined[name] = stack[0] if len(stack) == 1 else torch.stack(stack)
    return joined, len(listed)


def _memory(model: Record, tensors: Tensors, n_agents: int, n_features: int, where: str) -> StackedMemory:
    kind = MEMORIES[model.kind]
    cell_tensors = subtree(_part(tensors, kind)[0], f"{kind}s")
    layers = [below(cell_tensors, str(index)) for index in range(int(model.get("n_layers")))]
    if any("weight_ih" not in layer or "weight_hh" not in layer for layer in layers):
        raise CheckpointError(
            f"{where} has the tensors {sorted(cell_tensors)}; its configuration says {len(layers)} layers"
        )
    shared, n_inputs = layers[0]["weight_hh"].ndim == 2, layers[0]["weight_ih"].shape[-1]
    _check_sizes(layers[0]["weight_hh"], n_inputs, n_agents, n_features, where)
    return StackedMemory(kind, layers, n_agents, shared=shared, centralised=n_inputs != n_features)


def _chain(model: Record, prefix: str, tensors: Tensors, n_agents: int, n_features: int, where: str) -> StackedNetwork:
    weights = [tensor for name, tensor in tensors.items() if name.endswith("weight")]
    if not weights:
        raise CheckpointError(f"{where} has no weights")
    shared, n_inputs, n_outputs = weights[0].ndim == 2, weights[0].shape[-1], weights[-1].shape[-2]
    _check_sizes(weights[0], n_inputs, n_agents, n_features, where)
    layers, names = _layers(model, prefix, n_inputs, n_outputs)
    _check_names(names, tensors, where)
    agent_layers = [layer_of(layer, below(tensors, str(index)), n_agents, shared) for index, layer in enumerate(layers)]
    return assemble(agent_layers, n_agents, (n_inputs,), centralised=n_inputs != n_features, shared=shared)


def _check_names(names: set[str], tensors: Tensors, where: str) -> None:
    if names != set(tensors):
        raise CheckpointError(f"{where} has the tensors {sorted(tensors)}; its configuration says {sorted(names)}")


def _check_sizes(weight: Tensor, n_inputs: int, n_agents: int, n_features: int, where: str) -> None:
    if weight.ndim == 3 and len(weight) != n_agents:
        raise CheckpointError(f"{where} has parameters of {len(weight)} agents; the environment's group has {n_agents}")
    if n_inputs not in (n_features, n_features * n_agents):
        raise ConfigError(f"{where} reads {n_inputs} features; the environment gives each agent {n_features}")


def _layers(model: Record, prefix: str, n_inputs: int, n_outputs: int) -> tuple[list[nn.Module], set[str]]:
    """The layers of torchrl's MLP for this configuration, and the names of its tensors."""
    kind = model.get(f"{prefix}layer_class")
    if kind is not None and _class_of(kind) is not nn.Linear:
        raise ConfigError(f"layer class {kind!r} is not supported; valid: torch.nn.Linear")
    mlp = MLP(
        in_features=n_inputs,
        out_features=n_outputs,
        num_cells=list(model.get(f"{prefix}num_cells")),
        **_nonlinear(model, prefix),
    )
    return list(mlp), set(mlp.state_dict())


def _convolutions(model: Record, n_inputs: int) -> tuple[list[nn.Module], set[str]]:
    """The layers of torchrl's ConvNet for this configuration, and the names of its tensors."""
    options = {name: model.get(f"cnn_{name}") for name in ("num_cells", "kernel_sizes", "strides", "paddings")}
    conv_net = ConvNet(in_features=n_inputs, **options, **_nonlinear(model, "cnn_"))
    return list(conv_net), set(conv_net.state_dict())


def _nonlinear(model: Record, prefix: str) -> dict[str, Any]:
    norm = model.get(f"{prefix}norm_class")
    return {
        "activation_class": _class_of(model.get(f"{prefix}activation_class")),
        "activation_kwargs": model.get(f"{prefix}activation_kwargs"),
        "norm_class": None if norm is None else _class_of(norm),
        "norm_kwargs": model.get(f"{prefix}norm_kwargs"),
    }


def _class_of(named: Any) -> type[nn.Module]:
    """The torch.nn class that a record names."""
    home = named.home if isinstance(named, type) and issubclass(named, Record) else ""
    layer_class = getattr(nn, home.rpartition(".")[2], None) if home.startswith("torch.nn.") else None
    if not (isinstance(layer_class, type) and issubclass(layer_class, nn.Module)):
        raise ConfigError(f"layer class {home or named!r} is not supported; valid: classes of torch.nn")
    return layer_class
