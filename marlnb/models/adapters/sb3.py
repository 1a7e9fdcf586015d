"""The networks of Stable-Baselines3 models, one for all agents or one per agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.adapters.critic import ExternalCritic
from marlnb.models.adapters.memory import memory_of
from marlnb.models.adapters.module_network import ModuleNetwork, check_feed_forward
from marlnb.models.adapters.parameters import FreeGaussian, LocScale
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.sequential import SequentialNetwork
from marlnb.models.adapters.stacked import assemble, layer_of
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.by_agent import ByAgent
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution, action_distribution
from marlnb.specs import EnvSpec, GroupSpec

VALID = (
    "PPO, A2C and DQN with MlpPolicy, or CnnPolicy with its NatureCNN, and sb3-contrib's RecurrentPPO with "
    "MlpLstmPolicy or CnnLstmPolicy"
)


class WithLogStd(nn.Module):
    """Concatenates the mean and a log standard deviation that does not depend on the observation.

    Args:
        log_stds: the models' parameters `[component]`, one for all agents or one per agent.
        scaled: maps (mean, log_std) to the distribution's parameters.
    """

    def __init__(self, log_stds: Sequence[nn.Parameter], scaled: LocScale) -> None:
        super().__init__()
        self.log_stds, self.scaled = nn.ParameterList(log_stds), scaled

    def forward(self, mean: Tensor) -> Tensor:
        log_std = self.log_stds[0] if len(self.log_stds) == 1 else torch.stack(list(self.log_stds))
        return self.scaled(torch.cat((mean, log_std.expand_as(mean)), dim=-1))  # type: ignore[no-any-return]


def policy_of(
    models: Sequence[Any], members: Sequence[Sequence[int]], group: GroupSpec, env: EnvSpec
) -> ExternalPolicy:
    """The policy of a group; `models[k]` controls the agents `members[k]`.

    Raises:
        ConfigError: the model or its features extractor is not supported; the message lists the supported ones.
    """
    for model in models:
        if not _memories(model):
            check_feed_forward(model.policy, group.name)
    actors = [_actor(model) for model in models]
    network = _group_network(models, actors, members, group)
    greedy = hasattr(models[0], "q_net")
    distribution, parameters = _distribution(models, members, group)
    critics = [] if greedy else [_critic(model) for model in models]
    critic = ExternalCritic(group, _group_network(models, critics, members, group), env) if critics else None
    return ExternalPolicy(group, network, distribution, parameters=parameters, greedy=greedy, critic=critic)


def _actor(model: Any) -> list[nn.Module]:
    policy = model.policy
    if hasattr(model, "q_net"):
        return [*_features(model.q_net.features_extractor), *model.q_net.q_net]
    if not (hasattr(policy, "mlp_extractor") and hasattr(policy, "action_net")):
        raise ConfigError(f"{type(model).__name__} with {type(policy).__name__} is not supported; valid: {VALID}")
    head = [*policy.mlp_extractor.policy_net, policy.action_net]
    return [*_features(policy.pi_features_extractor), *_memories(model)[:1], *head]


def _critic(model: Any) -> list[nn.Module]:
    policy = model.policy
    head = [*policy.mlp_extractor.value_net, policy.value_net]
    return [*_features(policy.vf_features_extractor), *_memories(model)[1:], *head]


def _memories(model: Any) -> list[nn.Module]:
    """The layers before the actor's and the critic's MLP in sb3-contrib's recurrent policies; otherwise none.

    With `shared_lstm`, the critic has a copy of the actor's state, which is always equal. With
    `enable_critic_lstm=False`, the critic has a linear map instead of an LSTM.
    """
    policy = model.policy
    if not (hasattr(policy, "lstm_actor") and hasattr(policy, "shared_lstm")):
        return []
    actor = policy.lstm_actor
    return [actor, actor if policy.shared_lstm else policy.lstm_critic if policy.critic is None else policy.critic]


def _features(extractor: Any) -> list[nn.Module]:
    """The layers of a features extractor; none for FlattenExtractor."""
    kind = type(extractor).__name__
    if kind == "NatureCNN":
        return [*extractor.cnn, *extractor.linear]
    if kind != "FlattenExtractor":
        raise ConfigError(
            f"features extractor {kind} is not supported; valid: {VALID}. For another model: pass its policy's module "
            "to agents_from_module"
        )
    return []


def _group_network(
    models: Sequence[Any], chains: Sequence[list[nn.Module]], members: Sequence[Sequence[int]], group: GroupSpec
) -> Network:
    if len(chains) == 1:
        return _network(models[0], chains[0], group.n_agents, group)
    networks = [_network(model, chain, len(rows), group) for model, chain, rows in zip(models, chains, members)]
    return ByAgent(group.agents, members, networks)


def _network(model: Any, chain: list[nn.Module], n_agents: int, group: GroupSpec) -> Network:
    from stable_baselines3.common.preprocessing import is_image_space

    lstm_index = next((index for index, layer in enumerate(chain) if isinstance(layer, nn.LSTM)), None)
    is_convolution = isinstance(chain[0], nn.Conv2d)
    reads_images = is_convolution or is_image_space(model.observation_space)  # an MLP's are converted too
    if lstm_index is None and not reads_images:
        return ModuleNetwork(nn.Sequential(*chain), n_agents, (group.observation.size,))
    before, after = (chain, []) if lstm_index is None else (chain[:lstm_index], chain[lstm_index + 1 :])
    parts: list[Network] = []
    if reads_images:
        image = ImageInput(model, n_agents, group)
        parts.append(image)
        shape = image.model_shape if is_convolution else (image.out_features,)
        parts += [_layers(before, n_agents, shape)] if before else []
    if lstm_index is not None:
        recurrent_part = memory_of(chain[lstm_index], n_agents)
        parts += [recurrent_part, _layers(after, n_agents, (recurrent_part.out_features,))]
    return SequentialNetwork(parts)


def _layers(chain: Sequence[nn.Module], n_agents: int, shape: Sequence[int]) -> Network:
    layers = [layer_of(layer, dict(layer.named_parameters()), n_agents, shared=True) for layer in chain]
    return assemble(layers, n_agents, shape, centralised=False, shared=True)


class ImageInput(Network):
    """Converts images to the model's format: channels first, and divided by 255 if they are uint8.

    Raises:
        ConfigError: the environment's images have another shape than the model's.
    """

    def __init__(self, model: Any, n_agents: int, group: GroupSpec) -> None:
        super().__init__()
        from stable_baselines3.common.preprocessing import is_image_space

        space = model.observation_space
        self.shape, self.model_shape = tuple(group.observation.shape), tuple(space.shape)
        self.n_agents, self.in_features, self.out_features = n_agents, group.observation.size, group.observation.size
        self.channels_last = self.shape != self.model_shape
        if self.channels_last and (*self.shape[-1:], *self.shape[:-1]) != self.model_shape:
            raise ConfigError(
                f"the model of {group.name!r} reads images {list(self.model_shape)}; "
                f"observations have {list(self.shape)}"
            )
        self.scale = 255.0 if model.policy.normalize_images and is_image_space(space) else 1.0

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: images flattened."""
        x = x.float() / self.scale
        return (x.unflatten(-1, self.shape).movedim(-1, -3).flatten(-3) if self.channels_last else x), None

    def site_modules(self) -> list[SiteModule]:
        return []


def _distribution(
    models: Sequence[Any], members: Sequence[Sequence[int]], group: GroupSpec
) -> tuple[ActionDistribution, nn.Module | None]:
    action = group.action
    if action.kind != "continuous":
        return action_distribution(action), None
    model_of = {agent: model for model, rows in zip(models, members) for agent in rows}
    policies = [model_of[agent].policy for agent in range(group.n_agents)]
    if any(getattr(policy, "use_sde", False) or not hasattr(policy, "log_std") for policy in policies):
        raise ConfigError("state-dependent exploration (use_sde=True) is not supported; valid: use_sde=False")
    log_stds = [policies[0].log_std] if len(models) == 1 else [policy.log_std for policy in policies]
    squash = LocScale(log_scale=True, units=action)
    return FreeGaussian(action.low, action.high, "clip"), WithLogStd(log_stds, squash)
