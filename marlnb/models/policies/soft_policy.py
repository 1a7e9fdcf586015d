"""SoftPolicy: the policy of ISAC and MASAC. A stochastic actor, two critics, and the entropy's weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.policy import ActContext, ActorOutput
from marlnb.models.policies.q_actor_critic import QActorCritic
from marlnb.specs import EnvSpec, GroupSpec


class Temperature(nn.Module):
    """The weight `alpha` of entropy against reward, in units of reward per nat; its logarithm is the parameter."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(initial).log())

    def forward(self) -> Tensor:
        """The weight, `[]`."""
        return self.log.exp()


class SoftPolicy(QActorCritic):
    """A stochastic actor and two critics of its actions.

    Discrete actions: a decentralised critic has an output for each choice, a centralised one reads the actions taken.
    Continuous actions: a normal squashed by tanh, whose standard deviation is an output of the actor's network.
    """

    def __init__(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        centralised: bool,
        temperature: float,
    ) -> None:
        self.continuous = group.action.kind == "continuous"
        chooser, all_actions = Actor(group, actor, std_of="network"), not (self.continuous or centralised)
        super().__init__(group, env, chooser, critic, centralised=centralised, twins=True, all_actions=all_actions)
        self.temperature = Temperature(temperature)

    @torch.no_grad()
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        distribution = self.actor.distribution
        parameters = distribution.mask(self.actor(observation), context.action_mask)
        sample = distribution.choose(parameters, context.generator, explore=context.explore)
        if not (context.explore and self.uniform):
            return ActorOutput(sample.action, sample.log_prob, parameters)
        if self.continuous:
            code = torch.empty_like(parameters[..., : self.group.action.n_components])
            code.uniform_(-1, 1, generator=context.generator)
            action = self.critic.decode_action(self.group.name, code)
            return ActorOutput(action, torch.zeros_like(sample.log_prob), parameters)
        uniform = distribution.mask(torch.zeros_like(parameters), context.action_mask)
        sample = distribution.sample(uniform, context.generator)
        return ActorOutput(sample.action, sample.log_prob, parameters)

    def greedy_code(self, parameters: Tensor) -> Tensor:
        if self.continuous:
            return parameters[..., : self.group.action.n_components].tanh()
        return self.critic.encode_action(self.group.name, parameters.argmax(-1))
