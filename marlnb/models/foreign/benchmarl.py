"""Policies and critics of a BenchMARL experiment, rebuilt from its configuration and the tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict.nn import NormalParamExtractor
from torch import Tensor, nn
from torchrl.modules import MLP

from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.distributions import ActionDistribution, action_distribution
from marlnb.models.foreign.parameters import Direct, FreeGaussian, LocScale, tanh_delta
from marlnb.models.foreign.policy import ForeignCritic, ForeignPolicy
from marlnb.models.foreign.records import Record
from marlnb.models.foreign.stacked import StackedNetwork, assemble, below, layer_of
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec

STOCHASTIC = ("IppoConfig", "MappoConfig", "IsacConfig", "MasacConfig")
VALUE_BASED = ("IqlConfig", "VdnConfig", "QmixConfig")
DETERMINISTIC = ("IddpgConfig", "MaddpgConfig")
ACTORS = ("actor_network_params", "value_network_params", "local_value_network_params")
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Experiment:
    """What `config.pkl` of a BenchMARL 1.5 experiment says, as records.

    Attributes:
        task: its class, name and options; algorithm, model, critic_model, settings: their configurations.
    """

    task: Record
    algorithm: Record
    model: Record
    critic_model: Record
    settings: Record
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def continuous(self) -> bool:
        """Whether it chose continuous actions where the task has both kinds."""
        if self.algorithm.kind in VALUE_BASED:
            return False
        return self.algorithm.kind in DETERMINISTIC or bool(self.settings.get("prefer_continuous_actions", True))


def experiment_of(records: list[Any]) -> Experiment:
    """The experiment in the eight objects of a `config.pkl`.

    Raises:
        CheckpointError: they are others.
    """
    if len(records) < 7 or not all(isinstance(records[index], Record) for index in (0, 2, 3, 5, 6)):
        raise CheckpointError(f"expected the configuration of a BenchMARL 1.5 experiment; found {records!r:.300}")
    task, options, algorithm, model, _, settings, critic_model = records[:7]
    known = (*STOCHASTIC, *VALUE_BASED, *DETERMINISTIC)
    if algorithm.kind not in known:
        raise ConfigError(f"the algorithm {algorithm.kind} cannot be read; valid: {', '.join(known)}")
    return Experiment(task, algorithm, model, critic_model, settings, dict(options or {}))


def policy_of(experiment: Experiment, group: GroupSpec, env: EnvSpec, state: Tensors) -> ForeignPolicy:
    """The policy of one group out of its loss's tensors by name.

    Raises:
        CheckpointError: tensors are missing or of other shapes than the configuration and the environment say.
        ConfigError: a kind of network or distribution that cannot be read.
    """
    name, tensors = _first(state, ACTORS, group)
    path = next((path for path in _paths(tensors) if path.endswith("mlp.params")), None)
    if path is None:
        raise ConfigError(
            f"the model {experiment.model.kind} of {group.name!r} cannot be read; valid: MlpConfig. "
            f"Its tensors: {sorted(tensors)[:6]}"
        )
    actor = network(experiment.model, below_all(tensors, path), group.n_agents, group.observation.size, name)
    distribution, parameters = _distribution(experiment, group.action)
    greedy = experiment.algorithm.kind in VALUE_BASED
    critic = _critic(experiment, group, env, state)
    return ForeignPolicy(group, actor, distribution, parameters=parameters, greedy=greedy, critic=critic)


def network(model: Record, tensors: Tensors, n_agents: int, n_features: int, where: str) -> StackedNetwork:
    """A BenchMARL Mlp of tensors `0.weight`, ..., stacked over agents or not, as its configuration describes it."""
    if model.kind != "MlpConfig":
        raise ConfigError(f"the model {model.kind} cannot be read; valid: MlpConfig")
    weights = [tensor for name, tensor in tensors.items() if name.endswith("weight")]
    if not weights:
        raise CheckpointError(f"no weights for {where}")
    shared = weights[0].ndim == 2
    if not shared and len(weights[0]) != n_agents:
        raise CheckpointError(f"{where} is of {len(weights[0])} agents; the environment's group has {n_agents}")
    n_inputs, n_outputs = weights[0].shape[-1], weights[-1].shape[-2]
    if n_inputs not in (n_features, n_features * n_agents):
        raise ConfigError(f"{where} reads {n_inputs} features; the environment gives each agent {n_features}")
    layers, names = _layers(model, n_inputs, n_outputs)
    if names != set(tensors):
        raise CheckpointError(f"{where} has the tensors {sorted(tensors)}; its configuration says {sorted(names)}")
    made = [layer_of(layer, below(tensors, str(index)), n_agents, shared) for index, layer in enumerate(layers)]
    central = n_inputs != n_features
    return assemble(made, n_agents, (n_inputs,), centralised=central, shared=shared)


def _layers(model: Record, n_inputs: int, n_outputs: int) -> tuple[list[nn.Module], set[str]]:
    """The layers of torchrl's MLP that this configuration makes, and the names of its tensors."""
    if _class_of(model.get("layer_class")) is not nn.Linear:
        raise ConfigError(f"layers of {model.get('layer_class')!r} cannot be read; valid: torch.nn.Linear")
    norm = model.get("norm_class")
    made = MLP(
        in_features=n_inputs,
        out_features=n_outputs,
        num_cells=list(model.get("num_cells")),
        activation_class=_class_of(model.get("activation_class")),
        activation_kwargs=model.get("activation_kwargs"),
        norm_class=None if norm is None else _class_of(norm),
        norm_kwargs=model.get("norm_kwargs"),
    )
    return list(made), set(made.state_dict())


def _class_of(named: Any) -> type[nn.Module]:
    """A layer's class that a record names: one of torch.nn's own, and no other."""
    home = named.home if isinstance(named, type) and issubclass(named, Record) else ""
    found = getattr(nn, home.rpartition(".")[2], None) if home.startswith("torch.nn.") else None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"layers of {home or named!r} cannot be read; valid: those of torch.nn")
    return found


def _critic(experiment: Experiment, group: GroupSpec, env: EnvSpec, state: Tensors) -> ForeignCritic | None:
    tensors = below_all(state, "critic_network_params")
    paths = _paths(tensors)
    path = next((path for path in paths if path.endswith("mlp.params")), None)
    if path is not None:
        own = below_all(tensors, path)
        made = network(experiment.critic_model, own, group.n_agents, group.observation.size, "the critic")
        return ForeignCritic(group, made, env)
    lists = sorted({path for path in paths if path.rpartition(".")[0].endswith("mlp")})
    if not lists:
        return None
    own = _joined([below_all(tensors, path) for path in lists])
    size = own["0.weight"].shape[-1]
    made = network(experiment.critic_model, own, len(lists), size, "the critic")
    return ForeignCritic(group, made, env, "joint" if env.state_shape is None else "state")


def _joined(each: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several networks stacked, those of one as they are."""
    if len(each) == 1:
        return each[0]
    return {name: torch.stack([tensors[name] for tensors in each]) for name in each[0]}


def _distribution(experiment: Experiment, action: ActionSpec) -> tuple[ActionDistribution, nn.Module | None]:
    algorithm = experiment.algorithm
    if action.kind != "continuous":
        if algorithm.kind in DETERMINISTIC:
            raise ConfigError(f"{algorithm.kind} chose continuous actions; the environment's are {action.kind}")
        return action_distribution(action), None
    if algorithm.kind in VALUE_BASED:
        raise ConfigError(f"{algorithm.kind} chose among discrete actions; the environment's are continuous")
    if algorithm.kind in DETERMINISTIC:
        tanh = algorithm.get("use_tanh_mapping", True)
        return tanh_delta(action) if tanh else (Direct(action.low, action.high), None)
    extractor = NormalParamExtractor(scale_mapping=str(algorithm.get("scale_mapping", "biased_softplus_1.0")))
    if algorithm.get("use_tanh_normal", True):
        return FreeGaussian(action.low, action.high, "tanh"), LocScale(extractor)
    return FreeGaussian(action.low, action.high, "clip"), LocScale(extractor, units=action)


def _first(state: Tensors, names: tuple[str, ...], group: GroupSpec) -> tuple[str, dict[str, Tensor]]:
    for name in names:
        tensors = below_all(state, name)
        if tensors:
            return name, tensors
    found = sorted({key.partition(".")[0] for key in state})
    raise CheckpointError(f"no actor of {group.name!r} among {found}; expected one of {', '.join(names)}")


def below_all(tensors: Tensors, path: str) -> dict[str, Tensor]:
    """The tensors beneath a dotted path, named from there."""
    return {
        name[len(path) + 1 :]: tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{path}.") and isinstance(tensor, Tensor)
    }


def _paths(tensors: Tensors) -> set[str]:
    """What `<path>.<layer>.<weight or bias>` have before the layer."""
    return {name.rsplit(".", 2)[0] for name in tensors if name.count(".") > 1}
