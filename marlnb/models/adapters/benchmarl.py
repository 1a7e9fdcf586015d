"""Rebuilds the policies and critics of a BenchMARL experiment from its configuration and a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tensordict.nn import NormalParamExtractor
from torch import Tensor, nn

from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.adapters.benchmarl_networks import (
    NetworkInput,
    Tensors,
    first_size,
    group_model,
    n_reading_one,
    network,
    subtree,
)
from marlnb.models.adapters.critic import ExternalCritic, Reads
from marlnb.models.adapters.mixing import TorchrlMixer
from marlnb.models.adapters.parameters import Direct, FreeGaussian, LocScale, tanh_delta
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.q_critic import ExternalQCritic
from marlnb.models.adapters.safe_unpickle import Record
from marlnb.models.adapters.soft_critic import ExternalSoftCritic
from marlnb.models.networks.mixers import Mixer, SumMixer
from marlnb.models.policies.distributions import ActionDistribution, action_distribution
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec

SOFT = ("IsacConfig", "MasacConfig")
STOCHASTIC = ("IppoConfig", "MappoConfig", *SOFT)
VALUE_BASED = ("IqlConfig", "VdnConfig", "QmixConfig")
DETERMINISTIC = ("IddpgConfig", "MaddpgConfig")
CENTRAL = ("MappoConfig", "MasacConfig", "MaddpgConfig")
ACTORS = ("actor_network_params", "value_network_params", "local_value_network_params")


@dataclass(frozen=True)
class Experiment:
    """The contents of a BenchMARL 1.5 experiment's `config.pkl`, as records.

    Attributes:
        task: the task's class and name.
        algorithm: the algorithm's configuration.
        model: the actor's configuration.
        critic_model: the critic's configuration.
        settings: BenchMARL's ExperimentConfig.
        options: the task's options by name.
    """

    task: Record
    algorithm: Record
    model: Record
    critic_model: Record
    settings: Record
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def continuous(self) -> bool:
        """Whether the algorithm uses continuous actions if the task supports both kinds."""
        if self.algorithm.kind in VALUE_BASED:
            return False
        return self.algorithm.kind in DETERMINISTIC or bool(self.settings.get("prefer_continuous_actions", True))


def experiment_of(records: list[Any]) -> Experiment:
    """The experiment in the eight objects of a `config.pkl`.

    Raises:
        CheckpointError: the objects are not such a configuration.
        ConfigError: the algorithm is not supported.
    """
    if len(records) < 7 or not all(isinstance(records[index], Record) for index in (0, 2, 3, 5, 6)):
        raise CheckpointError(f"expected the configuration of a BenchMARL 1.5 experiment; got {records!r:.300}")
    task, options, algorithm, model, _, settings, critic_model = records[:7]
    known = (*STOCHASTIC, *VALUE_BASED, *DETERMINISTIC)
    if algorithm.kind not in known:
        raise ConfigError(f"algorithm {algorithm.kind} is not supported; valid: {', '.join(known)}")
    return Experiment(task, algorithm, model, critic_model, settings, dict(options or {}))


def policy_of(experiment: Experiment, group: GroupSpec, env: EnvSpec, state: Tensors) -> ExternalPolicy:
    """The policy of one group.

    Args:
        experiment: the experiment.
        group: the group.
        env: the environment.
        state: the state dict of the group's loss.
    Raises:
        CheckpointError: tensors are missing, or do not fit the configuration and the environment.
        ConfigError: the network or the distribution is not supported.
    """
    name, tensors = _actor_tensors(state, ACTORS, group)
    inputs = NetworkInput(group.n_agents, group.observation.shape)
    actor = network(group_model(experiment.model, group.name), tensors, inputs, name)
    distribution, parameters = _distribution(experiment, group.action)
    greedy = experiment.algorithm.kind in VALUE_BASED
    return ExternalPolicy(
        group,
        actor,
        distribution,
        parameters=parameters,
        greedy=greedy,
        critic=_critic(experiment, group, env, state),
        action_critic=None if actor.recurrent_shape else _action_critic(experiment, group, env, state),
        mixer=_mixer(experiment, group, env, state),
    )


def _critic(experiment: Experiment, group: GroupSpec, env: EnvSpec, state: Tensors) -> ExternalCritic | None:
    tensors = subtree(state, "critic_network_params")
    if not tensors:
        return None
    model, where = group_model(experiment.critic_model, group.name), "the critic"
    inputs, reads = _critic_input(
        experiment, model, tensors, NetworkInput(group.n_agents, group.observation.shape), env
    )
    return ExternalCritic(group, network(model, tensors, inputs, where), env, reads)


def _critic_input(
    experiment: Experiment, model: Record, tensors: Tensors, inputs: NetworkInput, env: EnvSpec
) -> tuple[NetworkInput, Reads]:
    """The input of a critic: one row per agent, or one array for all agents."""
    n_listed = n_reading_one(model, tensors, inputs)
    if not n_listed:
        return replace(inputs, central=experiment.algorithm.kind in CENTRAL), "observation"
    state = env.state_shape
    by_rows = state is not None and len(state) > 1
    shape = tuple(state) if state is not None and by_rows else (first_size(tensors),)
    return NetworkInput(n_listed, shape, equal_rows=True), "joint" if state is None else "state"


def _action_critic(
    experiment: Experiment, group: GroupSpec, env: EnvSpec, state: Tensors
) -> ExternalQCritic | ExternalSoftCritic | None:
    """The Q networks of SAC (twins) and DDPG (one); None if they are recurrent."""
    kind = experiment.algorithm.kind
    if kind not in (*SOFT, *DETERMINISTIC):
        return None
    tensors = subtree(state, f"{'q' if kind in SOFT else ''}value_network_params")
    if not tensors:
        return None
    per_network = [tensors]
    if kind in SOFT:  # torchrl stacks the twins along the first axis
        per_network = [
            {name: tensor[k] for name, tensor in tensors.items()} for k in range(len(next(iter(tensors.values()))))
        ]
    model, where = group_model(experiment.critic_model, group.name), "the critic"
    if group.action.kind == "continuous":
        inputs = NetworkInput(group.n_agents, group.observation.shape, group.action.n_components)
        inputs, reads = _critic_input(experiment, model, per_network[0], inputs, env)
        networks = [network(model, one, inputs, where) for one in per_network]
        return None if networks[0].recurrent_shape else ExternalQCritic(group, networks, env, reads)
    inputs, reads = NetworkInput(group.n_agents, group.observation.shape), "observation"
    coupled = bool(experiment.algorithm.get("coupled_discrete_values", True))
    if kind != "MasacConfig" or coupled:
        inputs, reads = _critic_input(experiment, model, per_network[0], inputs, env)
    else:  # each row: the other agents' actions, then the state or all observations
        reads = "joint" if env.state_shape is None else "state"
        inputs = NetworkInput(group.n_agents, (first_size(per_network[0]),))
    networks = [network(model, one, inputs, where) for one in per_network]
    if networks[0].recurrent_shape:
        return None
    return ExternalSoftCritic(
        group, networks, env, reads, alpha=_alpha(experiment, state), reads_other_actions=not coupled
    )


def _alpha(experiment: Experiment, state: Tensors) -> float:
    """SAC's entropy weight: `alpha = clip(exp(log_alpha), min_alpha, max_alpha)`."""
    if "log_alpha" not in state:
        raise CheckpointError(
            f"the checkpoint has no log_alpha; it has {sorted({key.partition('.')[0] for key in state})}"
        )
    low, high = experiment.algorithm.get("min_alpha"), experiment.algorithm.get("max_alpha")
    alpha = float(state["log_alpha"].exp())
    return min(max(alpha, low or 0.0), float("inf") if high is None else high)


def _mixer(experiment: Experiment, group: GroupSpec, env: EnvSpec, state: Tensors) -> Mixer | None:
    if experiment.algorithm.kind == "VdnConfig":
        return SumMixer()
    if experiment.algorithm.kind != "QmixConfig":
        return None
    return TorchrlMixer(group, env, subtree(state, "mixer_network_params.module"))


def _distribution(experiment: Experiment, action: ActionSpec) -> tuple[ActionDistribution, nn.Module | None]:
    algorithm = experiment.algorithm
    if action.kind != "continuous":
        if algorithm.kind in DETERMINISTIC:
            raise ConfigError(
                f"{algorithm.kind} was trained on continuous actions; the environment has {action.kind} actions"
            )
        return action_distribution(action), None
    if algorithm.kind in VALUE_BASED:
        raise ConfigError(f"{algorithm.kind} was trained on discrete actions; the environment has continuous actions")
    if algorithm.kind in DETERMINISTIC:
        tanh = algorithm.get("use_tanh_mapping", True)
        return tanh_delta(action) if tanh else (Direct(action.low, action.high), None)
    extractor = NormalParamExtractor(scale_mapping=str(algorithm.get("scale_mapping", "biased_softplus_1.0")))
    if algorithm.get("use_tanh_normal", True):
        return FreeGaussian(action.low, action.high, "tanh"), LocScale(extractor)
    return FreeGaussian(action.low, action.high, "clip"), LocScale(extractor, units=action)


def _actor_tensors(state: Tensors, names: tuple[str, ...], group: GroupSpec) -> tuple[str, dict[str, Tensor]]:
    for name in names:
        tensors = subtree(state, name)
        if tensors:
            return name, tensors
    keys = sorted({key.partition(".")[0] for key in state})
    raise CheckpointError(f"no actor of {group.name!r}; the checkpoint has {keys}; expected one of {', '.join(names)}")
