"""BenchMARL's networks, rebuilt from the configuration of a model and the tensors of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrl.modules import MLP, ConvNet

from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.adapters.benchmarl_graphs import graph_layer
from marlnb.models.adapters.cnn_chain import CNNChain
from marlnb.models.adapters.memory import Kind, StackedMemory
from marlnb.models.adapters.pooled_sets import POOLS, PooledSets
from marlnb.models.adapters.safe_unpickle import Record
from marlnb.models.adapters.sequential import SequentialNetwork
from marlnb.models.adapters.stacked import StackedNetwork, assemble, below, layer_of
from marlnb.models.networks.network import Network

Tensors = Mapping[str, Tensor]
MEMORIES: dict[str, Kind] = {"GruConfig": "gru", "LstmConfig": "lstm"}
FIRST_PART = {"MlpConfig": "mlp", "CnnConfig": "cnn", **MEMORIES}


@dataclass(frozen=True)
class NetworkInput:
    """What a network reads.

    Attributes:
        n_agents: rows; shape: of each row's array; n_others: features after it, as an action.
        for_all: every row is the same, such as the environment's state; central: the output is of all agents, which
        the weights of a convolution over a graph do not tell.
    """

    n_agents: int
    shape: tuple[int, ...]
    n_others: int = 0
    for_all: bool = False
    central: bool = False

    @property
    def n_features(self) -> int:
        return int(torch.Size(self.shape).numel()) + self.n_others


def network(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    """The network of a checkpoint's tensors, as its configuration describes it.

    Args:
        given: for each agent; a network that reads `n_agents` times as many features is central.
    Raises:
        CheckpointError: tensors are missing or of other shapes than the configuration says.
        ConfigError: a kind of network that cannot be read.
    """
    if model.kind not in BUILDERS:
        raise ConfigError(f"the model {model.kind} cannot be read; valid: {', '.join(BUILDERS)}")
    return BUILDERS[model.kind](model, tensors, given, where)


def own_model(model: Record, group: str) -> Record:
    """The group's own, where an EnsembleModelConfig has one for each."""
    if model.kind != "EnsembleModelConfig":
        return model
    each: dict[str, Record] = model.get("model_configs_map")
    if group not in each:
        raise ConfigError(f"no model of {group!r} in this EnsembleModelConfig; it has {sorted(each)}")
    return each[group]


def n_reading_one(model: Record, tensors: Tensors, given: NetworkInput) -> int:
    """How many networks read one array for all agents, such as the environment's state; 0: they read the agents'."""
    while model.kind == "SequenceModelConfig":
        model, tensors = model.get("model_configs")[0], _of_sequence(tensors)[0]
    if model.kind in FIRST_PART:
        return _part(tensors, FIRST_PART[model.kind])[1]
    if model.kind == "DeepsetsConfig" and not _part(tensors, "local_deepsets")[0]:
        across, listed = _part(tensors, "global_deepsets")
        return 0 if across["local_nn.0.weight"].shape[-1] == given.n_features else listed
    return 0


def first_size(tensors: Tensors) -> int:
    """Features that the first linear map reads."""
    return next(tensor for name, tensor in tensors.items() if name.endswith(("0.weight_ih", "0.weight"))).shape[-1]


def below_all(tensors: Tensors, path: str) -> dict[str, Tensor]:
    """The tensors beneath a dotted path, named from there."""
    return {
        name[len(path) + 1 :]: tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{path}.") and isinstance(tensor, Tensor)
    }


def _perceptron(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    return _chain(model, "", _part(tensors, "mlp")[0], given.n_agents, given.n_features, where)


def _remembering(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    memory = _memory(model, tensors, given.n_agents, given.n_features, where)
    chain = _part(tensors, "mlp")[0]
    return SequentialNetwork([memory, _chain(model, "mlp_", chain, given.n_agents, memory.out_features, where)])


def _convolutional(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    if len(given.shape) != 3:
        raise ConfigError(f"{where} reads images [x, y, channel]; the environment gives {list(given.shape)}")
    cells, _ = _part(tensors, "cnn")
    if "0.weight" not in cells:
        raise CheckpointError(f"no convolutions for {where}")
    weight, n_channels, n_agents = cells["0.weight"], given.shape[-1], given.n_agents
    n_inputs, shared = weight.shape[-3], weight.ndim == 4
    if n_inputs not in (n_channels, n_channels * n_agents) or not (shared or len(weight) == n_agents):
        raise ConfigError(f"{where} reads {n_inputs} channels; the environment gives {n_agents} agents {n_channels}")
    layers, names = _convolutions(model, n_inputs)
    _check_names(names, cells, where)
    made = [layer_of(layer, below(cells, str(place)), n_agents, shared) for place, layer in enumerate(layers)]
    central = n_inputs != n_channels
    trunk = assemble(made, n_agents, (n_inputs, *given.shape[:2]), centralised=central, shared=shared)
    once = trunk.shared_forward
    n_read = trunk.out_features + given.n_others * (n_agents if once else 1)
    mlp = _chain(model, "mlp_", _part(tensors, "mlp")[0], 1 if once else n_agents, n_read, where)
    return CNNChain(trunk, mlp, given.shape, given.n_others)


def _of_sets(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    aggr = str(model.get("aggr"))
    if aggr not in POOLS:
        raise ConfigError(f"sets pooled by {aggr!r} cannot be read; valid: {', '.join(POOLS)}")
    local, _ = _part(tensors, "local_deepsets")
    across, listed = _part(tensors, "global_deepsets")
    parts: list[Network] = []
    for own, rows in ((local, given.n_agents), (across, listed)):
        if not own:
            continue
        by_agent = own is across and not given.for_all
        if not by_agent and len(given.shape) != 2:
            raise ConfigError(f"{where} reads sets [element, feature]; the environment gives {list(given.shape)}")
        n_each = given.shape[-1] if not by_agent else parts[0].out_features if parts else given.n_features
        n_others = 0 if by_agent else given.n_others
        each = _chain(model, "local_nn_", below_all(own, "local_nn"), rows, n_each, where)
        whole = _chain(model, "global_nn_", below_all(own, "global_nn"), rows, each.out_features + n_others, where)
        shape = None if by_agent else given.shape
        parts.append(PooledSets(each, whole, aggr, shape=shape, n_others=n_others, n_agents=given.n_agents))
    if not parts:
        raise CheckpointError(f"no weights for {where}")
    return parts[0] if len(parts) == 1 else SequentialNetwork(parts)


def _of_graphs(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    own, listed = _part(tensors, "gnns")
    own = {name: tensor.unsqueeze(0) for name, tensor in own.items()} if listed == 1 else own
    return graph_layer(model, own, given.n_agents, given.n_features, central=given.central, where=where)


def _sequence(model: Record, tensors: Tensors, given: NetworkInput, where: str) -> Network:
    parts: list[Network] = []
    for config, own in zip(model.get("model_configs"), _of_sequence(tensors), strict=True):
        if parts:
            listed = _part(own, FIRST_PART[config.kind])[1] if config.kind in FIRST_PART else 0
            given = NetworkInput(listed or given.n_agents, (parts[-1].out_features,))
        parts.append(network(config, own, given, where))
    return SequentialNetwork(parts)


BUILDERS: dict[str, Callable[[Record, Tensors, NetworkInput, str], Network]] = {
    "MlpConfig": _perceptron,
    "GruConfig": _remembering,
    "LstmConfig": _remembering,
    "CnnConfig": _convolutional,
    "DeepsetsConfig": _of_sets,
    "GnnConfig": _of_graphs,
    "SequenceModelConfig": _sequence,
}


def _of_sequence(tensors: Tensors) -> list[dict[str, Tensor]]:
    """The tensors of each model of a sequence."""
    models: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r".*?models\.module\.(\d+)\.(.+)", name)
        if match is not None:
            models.setdefault(int(match[1]), {})[match[2]] = tensor
    return [models[index] for index in sorted(models)]


def _part(tensors: Tensors, part: str) -> tuple[dict[str, Tensor], int]:
    """The tensors of `part` by name, as `0.weight`, and of how many networks its list is; 0: it has none.

    BenchMARL keeps the networks of agents in `<part>.params`, stacked, and those that read one vector for all, as
    critics do, in a list (sets and graphs always). Of several in a list the tensors are stacked too.
    """
    by_name: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(rf"(?:.*\.)?{part}\.(params|\d+)\.(.+)", name)
        if match is not None:
            by_name.setdefault(match[2], {})[match[1]] = tensor
    listed = {which for each in by_name.values() for which in each} - {"params"}
    joined = {}
    for name, each in by_name.items():
        several = [each[which] for which in sorted(each, key=lambda which: (len(which), which))]
        joined[name] = several[0] if len(several) == 1 else torch.stack(several)
    return joined, len(listed)


def _memory(model: Record, tensors: Tensors, n_agents: int, n_features: int, where: str) -> StackedMemory:
    kind = MEMORIES[model.kind]
    cells = below_all(_part(tensors, kind)[0], f"{kind}s")
    layers = [below(cells, str(place)) for place in range(int(model.get("n_layers")))]
    if any("weight_ih" not in layer or "weight_hh" not in layer for layer in layers):
        raise CheckpointError(f"{where} has the tensors {sorted(cells)}; its configuration says {len(layers)} layers")
    shared, n_inputs = layers[0]["weight_hh"].ndim == 2, layers[0]["weight_ih"].shape[-1]
    _check_sizes(layers[0]["weight_hh"], n_inputs, n_agents, n_features, where)
    return StackedMemory(kind, layers, n_agents, shared=shared, centralised=n_inputs != n_features)


def _chain(model: Record, prefix: str, tensors: Tensors, n_agents: int, n_features: int, where: str) -> StackedNetwork:
    weights = [tensor for name, tensor in tensors.items() if name.endswith("weight")]
    if not weights:
        raise CheckpointError(f"no weights for {where}")
    shared, n_inputs, n_outputs = weights[0].ndim == 2, weights[0].shape[-1], weights[-1].shape[-2]
    _check_sizes(weights[0], n_inputs, n_agents, n_features, where)
    layers, names = _layers(model, prefix, n_inputs, n_outputs)
    _check_names(names, tensors, where)
    made = [layer_of(layer, below(tensors, str(index)), n_agents, shared) for index, layer in enumerate(layers)]
    return assemble(made, n_agents, (n_inputs,), centralised=n_inputs != n_features, shared=shared)


def _check_names(names: set[str], tensors: Tensors, where: str) -> None:
    if names != set(tensors):
        raise CheckpointError(f"{where} has the tensors {sorted(tensors)}; its configuration says {sorted(names)}")


def _check_sizes(weight: Tensor, n_inputs: int, n_agents: int, n_features: int, where: str) -> None:
    if weight.ndim == 3 and len(weight) != n_agents:
        raise CheckpointError(f"{where} is of {len(weight)} agents; the environment's group has {n_agents}")
    if n_inputs not in (n_features, n_features * n_agents):
        raise ConfigError(f"{where} reads {n_inputs} features; the environment gives each agent {n_features}")


def _layers(model: Record, prefix: str, n_inputs: int, n_outputs: int) -> tuple[list[nn.Module], set[str]]:
    """The layers of torchrl's MLP that this configuration makes, and the names of its tensors."""
    kind = model.get(f"{prefix}layer_class")
    if kind is not None and _class_of(kind) is not nn.Linear:
        raise ConfigError(f"layers of {kind!r} cannot be read; valid: torch.nn.Linear")
    made = MLP(
        in_features=n_inputs,
        out_features=n_outputs,
        num_cells=list(model.get(f"{prefix}num_cells")),
        **_nonlinear(model, prefix),
    )
    return list(made), set(made.state_dict())


def _convolutions(model: Record, n_inputs: int) -> tuple[list[nn.Module], set[str]]:
    """The layers of torchrl's ConvNet that this configuration makes, and the names of its tensors."""
    options = {name: model.get(f"cnn_{name}") for name in ("num_cells", "kernel_sizes", "strides", "paddings")}
    made = ConvNet(in_features=n_inputs, **options, **_nonlinear(model, "cnn_"))
    return list(made), set(made.state_dict())


def _nonlinear(model: Record, prefix: str) -> dict[str, Any]:
    norm = model.get(f"{prefix}norm_class")
    return {
        "activation_class": _class_of(model.get(f"{prefix}activation_class")),
        "activation_kwargs": model.get(f"{prefix}activation_kwargs"),
        "norm_class": None if norm is None else _class_of(norm),
        "norm_kwargs": model.get(f"{prefix}norm_kwargs"),
    }


def _class_of(named: Any) -> type[nn.Module]:
    """A layer's class that a record names: one of torch.nn's own, and no other."""
    home = named.home if isinstance(named, type) and issubclass(named, Record) else ""
    layer_class = getattr(nn, home.rpartition(".")[2], None) if home.startswith("torch.nn.") else None
    if not (isinstance(layer_class, type) and issubclass(layer_class, nn.Module)):
        raise ConfigError(f"layers of {home or named!r} cannot be read; valid: those of torch.nn")
    return layer_class
