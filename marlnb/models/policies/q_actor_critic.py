"""QActorCritic: what the policies share that have an actor and critics which judge actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.errors import ConfigError
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor import Actor, ActorPolicy
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.q_critic import QCritic
from marlnb.specs import EnvSpec, GroupSpec


class QActorCritic(ActorPolicy):
    """A feed-forward actor, and one critic or two (twins) that judge actions.

    `uniform` says whether exploring is to act uniformly at random. A critic that reads other groups' actions is told
    of their policies by `meet`; they are no part of this one.

    Args:
        centralised: whether the critics read every group's observations and actions, and the environment's state.
        twins: whether there are two critics, of which the smaller value counts.
        each_choice: whether the critics judge every choice of a discrete action at once.
    """

    uniform: Tensor

    def __init__(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: Actor,
        critic: ModelConfig,
        *,
        centralised: bool,
        twins: bool,
        each_choice: bool,
    ) -> None:
        super().__init__()
        self.group, self.actor = group, actor
        self.critic = QCritic(group, env, critic, centralised=centralised, each_choice=each_choice)
        self.critic_2: QCritic | None = None
        if twins:
            self.critic_2 = QCritic(group, env, critic, centralised=centralised, each_choice=each_choice)
        self.register_buffer("uniform", torch.zeros((), dtype=torch.bool))
        self._others: dict[str, Policy] = {}

    @abstractmethod
    def greedy_code(self, parameters: Tensor) -> Tensor:
        """What critics read of the actions that `act(explore=False)` takes, `[..., agent, code]`."""

    @property
    def critics(self) -> list[QCritic]:
        return [self.critic] if self.critic_2 is None else [self.critic, self.critic_2]

    @property
    def has_critic(self) -> bool:
        return True

    def networks(self) -> list[tuple[str, Network, bool]]:
        named = zip(("critic", "critic_2"), self.critics)
        return [
            ("actor", self.actor.network, False),
            *((name, critic.network, critic.shared_forward) for name, critic in named),
        ]

    def bind_policies(self, policies: Mapping[str, Policy]) -> None:
        """Told of the policies by group, so that `value` knows how the others would act."""
        self._others = {name: policies[name] for name in self.critic.reads if name != self.group.name}

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Q `[..., agent]` of what all agents would do without exploring and without action masks.

        Agents of another group whose policy is recurrent are asked as at an episode's beginning.

        Raises:
            ConfigError: the critics read a group whose policy is not known.
        """
        name = self.group.name
        codes = {name: self.greedy_code(self.actor(observations[name]))}
        for other in self.critic.reads:
            if other != name:
                codes[other] = self.critic.code(other, self._greedy_action(other, observations[other]))
        seen = self.critic.seen(observations, state)
        values = [critic(seen, codes) for critic in self.critics]
        least = values[0] if len(values) == 1 else torch.minimum(*values)
        if self.critic.each_choice:
            least = (least * codes[name]).sum(-1)
        return least, None

    @torch.no_grad()
    def _greedy_action(self, group: str, observation: Tensor) -> Tensor:
        policy = self._others.get(group)
        if policy is None:
            raise ConfigError(
                f"the critic of {self.group.name!r} reads the actions of {group!r}, whose policy it lacks"
            )
        shape = (policy.group.n_agents, *policy.group.observation.shape)
        moments = observation.reshape(-1, *shape)
        recurrent = policy.initial_recurrent(len(moments), moments.device)
        action = policy.act(moments, recurrent=recurrent, explore=False).action
        return action.reshape(*observation.shape[: observation.ndim - len(shape)], *action.shape[1:])
