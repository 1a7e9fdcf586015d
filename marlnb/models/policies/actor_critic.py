"""ActorCritic: the policy of IPPO and MAPPO, a stochastic actor and a decentralised or centralised critic.

`policy.critic` is a module from critic inputs to values, so that attribution can differentiate it directly.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor import Actor, ActorPolicy, StdOf
from marlnb.models.policies.critic import Critic
from marlnb.models.policies.distributions import Squash
from marlnb.models.policies.policy import ActContext, ActorOutput, Reads
from marlnb.models.policies.value_norm import ValueNorm
from marlnb.specs import EnvSpec, GroupSpec


class ActorCritic(ActorPolicy):
    """An actor and a critic.

    Args:
        group: the agents and their spaces.
        env: the environment, which a centralised critic reads as a whole.
        actor: the actor's network.
        critic: the critic's network.
        centralised: the critic reads every group's observations and the environment's state.
        squash: how continuous actions are bounded.
        std_of: where their standard deviation comes from.
        initial_log_std: of continuous actions in `[-1, 1]` units, in nats.
    """

    def __init__(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        centralised: bool = False,
        squash: Squash = "tanh",
        std_of: StdOf = "parameter",
        initial_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.group = group
        self.actor = Actor(group, actor, squash=squash, std_of=std_of, initial_log_std=initial_log_std)
        self.critic = Critic(group, env, critic, centralised=centralised)
        self.value_norm = ValueNorm()
        self.recurrent_shape = self.actor.network.recurrent_shape
        self.critic_recurrent_shape = self.critic.network.recurrent_shape

    @torch.no_grad()
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        distribution = self.actor.distribution
        parameters, recurrent = self.actor.step(observation, context.recurrent)
        parameters = distribution.mask(parameters, context.action_mask)
        sample = distribution.choose(parameters, context.generator, explore=context.explore)
        extras = {} if sample.stored is sample.action else {distribution.stored_as: sample.stored}
        return ActorOutput(sample.action, sample.log_prob, parameters, recurrent, extras)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if recurrent is not None and self.critic.shared_forward:
            recurrent = recurrent[..., :1, :, :]
        values, after = self.critic.step(self.critic.inputs(observations, state), recurrent)
        if after is not None:
            after = after.expand(*after.shape[:-3], self.group.n_agents, *after.shape[-2:])
        return self.value_norm.denormalise(values), after

    @property
    def has_critic(self) -> bool:
        return True

    @property
    def critic_reads(self) -> Reads:
        if self.critic.centralised:
            return "all"
        return "group" if self.critic.network.cross_agent else "agent"

    def networks(self) -> list[tuple[str, Network, bool]]:
        return [("actor", self.actor.network, False), ("critic", self.critic.network, self.critic.shared_forward)]
