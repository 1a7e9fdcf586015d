"""The networks inside Stable-Baselines3's models, for agents that share one or have one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.by_agent import ByAgent
from marlnb.models.distributions import ActionDistribution, action_distribution
from marlnb.models.foreign.module_network import ModuleNetwork, check_forgets
from marlnb.models.foreign.parameters import FreeGaussian, LocScale
from marlnb.models.foreign.policy import ForeignCritic, ForeignPolicy
from marlnb.models.network import Network
from marlnb.specs import EnvSpec, GroupSpec

VALID = "PPO, A2C and DQN with MlpPolicy"


class WithLogStd(nn.Module):
    """The mean, and beside it a log standard deviation that does not depend on the observation, `[(agent,) component]`.

    log_stds: one for all agents or one each, the models' own.
    """

    def __init__(self, log_stds: Sequence[nn.Parameter], scaled: LocScale) -> None:
        super().__init__()
        self.log_stds, self.scaled = nn.ParameterList(log_stds), scaled

    def forward(self, mean: Tensor) -> Tensor:
        log_std = self.log_stds[0] if len(self.log_stds) == 1 else torch.stack(list(self.log_stds))
        return self.scaled(torch.cat((mean, log_std.expand_as(mean)), dim=-1))  # type: ignore[no-any-return]


def policy_of(models: Sequence[Any], members: Sequence[Sequence[int]], group: GroupSpec, env: EnvSpec) -> ForeignPolicy:
    """The policy of a group whose agents `members[k]` act by `models[k]`.

    Raises:
        ConfigError: a model that remembers or of another kind, or with another features extractor than flattening.
    """
    for model in models:
        check_forgets(model.policy, group.name)
    actors = [_actor(model) for model in models]
    network = _together(actors, members, group)
    greedy = hasattr(models[0], "q_net")
    distribution, parameters = _distribution(models, members, group)
    critics = [] if greedy else [_critic(model) for model in models]
    critic = ForeignCritic(group, _together(critics, members, group), env) if critics else None
    return ForeignPolicy(group, network, distribution, parameters=parameters, greedy=greedy, critic=critic)


def _actor(model: Any) -> nn.Sequential:
    policy = model.policy
    if hasattr(model, "q_net"):
        _flattens(model.q_net.features_extractor)
        return nn.Sequential(*model.q_net.q_net)
    if not (hasattr(policy, "mlp_extractor") and hasattr(policy, "action_net")):
        raise ConfigError(f"{type(model).__name__} with {type(policy).__name__} cannot be read; valid: {VALID}")
    _flattens(policy.pi_features_extractor)
    return nn.Sequential(*policy.mlp_extractor.policy_net, policy.action_net)


def _critic(model: Any) -> nn.Sequential:
    _flattens(model.policy.vf_features_extractor)
    return nn.Sequential(*model.policy.mlp_extractor.value_net, model.policy.value_net)


def _flattens(extractor: nn.Module) -> None:
    if type(extractor).__name__ != "FlattenExtractor":
        raise ConfigError(
            f"a model that extracts features by {type(extractor).__name__} cannot be read; valid: {VALID}. Its "
            "policy can be given to agents_from_module as a module of your own"
        )


def _together(chains: Sequence[nn.Module], members: Sequence[Sequence[int]], group: GroupSpec) -> Network:
    shape = (group.observation.size,)
    if len(chains) == 1:
        return ModuleNetwork(chains[0], group.n_agents, shape)
    networks = [ModuleNetwork(chain, len(rows), shape) for chain, rows in zip(chains, members)]
    return ByAgent(group.agents, members, networks)


def _distribution(
    models: Sequence[Any], members: Sequence[Sequence[int]], group: GroupSpec
) -> tuple[ActionDistribution, nn.Module | None]:
    action = group.action
    if action.kind != "continuous":
        return action_distribution(action), None
    of_agent = {agent: model for model, rows in zip(models, members) for agent in rows}
    policies = [of_agent[agent].policy for agent in range(group.n_agents)]
    if any(getattr(policy, "use_sde", False) or not hasattr(policy, "log_std") for policy in policies):
        raise ConfigError("policies with state-dependent exploration cannot be read; valid: use_sde=False")
    log_stds = [policies[0].log_std] if len(models) == 1 else [policy.log_std for policy in policies]
    squash = LocScale(log_scale=True, units=action)
    return FreeGaussian(action.low, action.high, "clip"), WithLogStd(log_stds, squash)
