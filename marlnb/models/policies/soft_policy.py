"""SoftPolicy: the policy of ISAC and MASAC. A stochastic actor, twin critics, and the weight of its entropy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.policy import ActorOutput
from marlnb.models.policies.q_actor_critic import QActorCritic
from marlnb.specs import EnvSpec, GroupSpec


class Temperature(nn.Module):
    """The weight of entropy against reward, in units of reward for a nat, learnt as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(initial).log())

    def forward(self) -> Tensor:
        """The weight, `[]`."""
        return self.log.exp()


class SoftPolicy(QActorCritic):
    """An actor with a distribution, and two critics that judge its actions.

    Discrete actions: the critics judge every choice at once. Continuous ones: normal, squashed by tanh, the deviation
    an output of the actor's network.
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
        super().__init__(
            group,
            env,
            Actor(group, actor, std_of="network"),
            critic,
            centralised=centralised,
            twins=True,
            each_choice=not self.continuous,
        )
        self.temperature = Temperature(temperature)

    @torch.no_grad()
    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        distribution = self.actor.distribution
        parameters = distribution.mask(self.actor(observation), action_mask)
        chosen = distribution.sample(parameters, generator) if explore else distribution.mode(parameters)
        if not (explore and self.uniform):
            return ActorOutput(chosen.action, chosen.log_prob, parameters)
        if self.continuous:
            code = torch.empty_like(parameters[..., : self.group.action.n_components])
            action = self.critic.action(self.group.name, code.uniform_(-1, 1, generator=generator))
            return ActorOutput(action, torch.zeros_like(chosen.log_prob), parameters)
        even = distribution.sample(distribution.mask(torch.zeros_like(parameters), action_mask), generator)
        return ActorOutput(even.action, even.log_prob, parameters)

    def greedy_code(self, parameters: Tensor) -> Tensor:
        if self.continuous:
            return parameters[..., : self.group.action.n_components].tanh()
        return self.critic.code(self.group.name, parameters.argmax(-1))
