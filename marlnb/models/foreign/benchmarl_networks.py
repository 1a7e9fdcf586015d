"""BenchMARL's networks, rebuilt from the configuration of a model and the tensors of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchrl.modules import MLP

from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.foreign.chained import Chained
from marlnb.models.foreign.memory import Kind, StackedMemory
from marlnb.models.foreign.records import Record
from marlnb.models.foreign.stacked import StackedNetwork, assemble, below, layer_of
from marlnb.models.network import Network

Tensors = Mapping[str, Tensor]
MEMORIES: dict[str, Kind] = {"GruConfig": "gru", "LstmConfig": "lstm"}
VALID = ", ".join(("MlpConfig", *MEMORIES))
_PART = re.compile(r"(?P<root>.*?)(?P<part>mlp|gru|lstm)\.(?P<which>params|\d+)\.(?P<rest>.+)")


def model_tensors(tensors: Tensors) -> tuple[dict[str, Tensor], int]:
    """A model's tensors by `<part>.<name>`, as `mlp.0.weight`, and of how many networks its list is; 0: it has none.

    BenchMARL keeps the networks of agents in `<part>.params`, stacked, and those that read one vector for all, as
    critics do, in a list. Of several in a list the tensors are stacked too.
    """
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = _PART.fullmatch(name)
        if match is not None:
            found.setdefault(f"{match['part']}.{match['rest']}", {})[match["which"]] = tensor
    listed = {which for each in found.values() for which in each} - {"params"}
    joined = {}
    for name, each in found.items():
        several = [each[which] for which in sorted(each, key=lambda which: (len(which), which))]
        joined[name] = several[0] if len(several) == 1 else torch.stack(several)
    return joined, len(listed)


def network(model: Record, tensors: Tensors, n_agents: int, n_features: int, where: str) -> Network:
    """The network of `model_tensors`, each tensor stacked over agents or not, as its configuration describes it.

    Args:
        n_features: what the environment gives each agent; a network that reads `n_agents` times as many is central.
    Raises:
        CheckpointError: tensors are missing or of other shapes than the configuration says.
        ConfigError: a kind of network that cannot be read.
    """
    chain = below_all(tensors, "mlp")
    if model.kind == "MlpConfig":
        return _chain(model, "", chain, n_agents, n_features, where)
    if model.kind not in MEMORIES:
        raise ConfigError(f"the model {model.kind} cannot be read; valid: {VALID}")
    memory = _memory(model, tensors, n_agents, n_features, where)
    return Chained([memory, _chain(model, "mlp_", chain, n_agents, memory.out_features, where)])


def below_all(tensors: Tensors, path: str) -> dict[str, Tensor]:
    """The tensors beneath a dotted path, named from there."""
    return {
        name[len(path) + 1 :]: tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{path}.") and isinstance(tensor, Tensor)
    }


def _memory(model: Record, tensors: Tensors, n_agents: int, n_features: int, where: str) -> StackedMemory:
    kind = MEMORIES[model.kind]
    cells = below_all(tensors, f"{kind}.{kind}s")
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
    if names != set(tensors):
        raise CheckpointError(f"{where} has the tensors {sorted(tensors)}; its configuration says {sorted(names)}")
    made = [layer_of(layer, below(tensors, str(index)), n_agents, shared) for index, layer in enumerate(layers)]
    return assemble(made, n_agents, (n_inputs,), centralised=n_inputs != n_features, shared=shared)


def _check_sizes(weight: Tensor, n_inputs: int, n_agents: int, n_features: int, where: str) -> None:
    if weight.ndim == 3 and len(weight) != n_agents:
        raise CheckpointError(f"{where} is of {len(weight)} agents; the environment's group has {n_agents}")
    if n_inputs not in (n_features, n_features * n_agents):
        raise ConfigError(f"{where} reads {n_inputs} features; the environment gives each agent {n_features}")


def _layers(model: Record, prefix: str, n_inputs: int, n_outputs: int) -> tuple[list[nn.Module], set[str]]:
    """The layers of torchrl's MLP that this configuration makes, and the names of its tensors."""

    def told(option: str) -> Any:
        return model.get(f"{prefix}{option}")

    if _class_of(told("layer_class")) is not nn.Linear:
        raise ConfigError(f"layers of {told('layer_class')!r} cannot be read; valid: torch.nn.Linear")
    norm = told("norm_class")
    made = MLP(
        in_features=n_inputs,
        out_features=n_outputs,
        num_cells=list(told("num_cells")),
        activation_class=_class_of(told("activation_class")),
        activation_kwargs=told("activation_kwargs"),
        norm_class=None if norm is None else _class_of(norm),
        norm_kwargs=told("norm_kwargs"),
    )
    return list(made), set(made.state_dict())


def _class_of(named: Any) -> type[nn.Module]:
    """A layer's class that a record names: one of torch.nn's own, and no other."""
    home = named.home if isinstance(named, type) and issubclass(named, Record) else ""
    found = getattr(nn, home.rpartition(".")[2], None) if home.startswith("torch.nn.") else None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"layers of {home or named!r} cannot be read; valid: those of torch.nn")
    return found
