"""Mutations of networks' options: units of a layer, number of layers, nonlinearity. Pure functions of an experiment.

Units and layers are added so that the network computes the same as before
(`marlnb.populations.training.evolution.growth`). Where that is not possible, the mutation is an error that says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from marlnb.config import ModelConfig
from marlnb.errors import ConfigError
from marlnb.evolution_config import EvolutionConfig
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.models.networks.configs.network import ActivationName

IDEMPOTENT = ("relu",)  # f(f(x)) = f(x), so that an identity after it changes nothing


@dataclass(frozen=True)
class NetworkTarget:
    """The actor or the critic of one group of agents.

    Attributes:
        part: of the experiment.
        group: of agents.
    """

    part: Literal["models", "critics"]
    group: str

    @property
    def path(self) -> str:
        return f"{self.part}.{self.group}"

    def config(self, experiment: Experiment) -> HiddenConfig:
        """The network's options. Raises ConfigError: it has no hidden layers."""
        config = experiment.actor_of(self.group) if self.part == "models" else experiment.critic_of(self.group)
        if not isinstance(config, HiddenConfig) or not config.hidden:
            raise ConfigError(f"{self.path}: model {config.name!r} has no hidden layers that could be mutated")
        return config

    def set(self, experiment: Experiment, **options: Any) -> Experiment:
        """The experiment with other options of this network; actor and critic are stated apart from then on."""
        networks: dict[str, ModelConfig] = {
            "models": experiment.actor_of(self.group),
            "critics": experiment.critic_of(self.group),
        }
        networks[self.part] = replace(networks[self.part], **options)
        models = {**experiment.models, self.group: networks["models"]}
        return replace(experiment, models=models, critics={**experiment.critics, self.group: networks["critics"]})


Mutated = tuple[Experiment, dict[str, list[Any]]]


def widen(rng: np.random.Generator, config: EvolutionConfig, experiment: Experiment, target: NetworkTarget) -> Mutated:
    """More units in one hidden layer.

    Raises:
        ConfigError: the layer is normalised, or has `max_units`.
    """
    network = target.config(experiment)
    layer, n_new = int(rng.integers(len(network.hidden))), int(rng.choice(config.new_units))
    if network.layer_norm:
        raise ConfigError(f"{target.path}: with layer_norm=true, new units change the normalisation of the old ones")
    units = network.hidden[layer] + n_new
    if units > config.max_units:
        raise ConfigError(f"{target.path}: layer {layer + 1} would have {units} units; max_units={config.max_units}")
    hidden = (*network.hidden[:layer], units, *network.hidden[layer + 1 :])
    return _changed(experiment, target, "hidden", list(network.hidden), list(hidden))


def deepen(rng: np.random.Generator, config: EvolutionConfig, experiment: Experiment, target: NetworkTarget) -> Mutated:
    """One more hidden layer, after the last one and as wide.

    Raises:
        ConfigError: an identity would change what the network computes, or there are `max_layers`.
    """
    network = target.config(experiment)
    if network.activation not in IDEMPOTENT or network.layer_norm:
        option = "layer_norm=true" if network.layer_norm else f"activation={network.activation}"
        raise ConfigError(
            f"{target.path}: a new layer computes the identity with activation={' or '.join(IDEMPOTENT)} and without "
            f"layer_norm only; it has {option}"
        )
    if len(network.hidden) >= config.max_layers:
        raise ConfigError(f"{target.path} has {len(network.hidden)} hidden layers; max_layers={config.max_layers}")
    hidden = [*network.hidden, network.hidden[-1]]
    return _changed(experiment, target, "hidden", list(network.hidden), hidden)


def change_activation(
    rng: np.random.Generator, config: EvolutionConfig, experiment: Experiment, target: NetworkTarget
) -> Mutated:
    """Another nonlinearity of the hidden layers, with the same weights. What the network computes changes."""
    network = target.config(experiment)
    others = [name for name in get_args(ActivationName) if name != network.activation]
    return _changed(experiment, target, "activation", network.activation, others[int(rng.integers(len(others)))])


def with_networks(experiment: Experiment, options: Mapping[str, Any]) -> Experiment:
    """The experiment with the options of networks among these, as `models.agent.hidden`."""
    for path, value in options.items():
        part, _, rest = path.partition(".")
        if part in ("models", "critics"):
            group, _, name = rest.rpartition(".")
            value = tuple(value) if isinstance(value, list) else value
            experiment = NetworkTarget(part, group).set(experiment, **{name: value})  # type: ignore[arg-type]
    return experiment


def _changed(experiment: Experiment, target: NetworkTarget, name: str, old: Any, new: Any) -> Mutated:
    value = tuple(new) if isinstance(new, list) else new
    return target.set(experiment, **{name: value}), {f"{target.path}.{name}": [old, new]}
