"""QActorCritic: the base of policies with an actor and critics of actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.errors import ConfigError
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor import Actor, ActorPolicy
from marlnb.models.policies.policy import Policy, Reads
from marlnb.models.policies.q_critic import QCritic
from marlnb.specs import EnvSpec, GroupSpec


class QActorCritic(ActorPolicy):
    """A feed-forward actor, and one critic of actions or two (twins).

    A critic that reads other groups' actions needs their policies to estimate values: `bind_policies` sets them. They
    are not submodules of this policy.

    Attributes:
        uniform: `[]` bool, whether exploration is uniformly random; the learner sets it.

    Args:
        group: the agents and their spaces.
        env: the environment, which a centralised critic reads as a whole.
        actor: the actor.
        critic: the critics' network.
        centralised: the critics read every group's observations and actions, and the environment's state.
        twins: use two critics and take the smaller value (Fujimoto et al. 2018, section 4.2, arXiv:1802.09477).
        all_actions: the critics evaluate every choice of a discrete action at once.
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
        all_actions: bool,
    ) -> None:
        super().__init__()
        self.group, self.actor = group, actor
        self.critic = QCritic(group, env, critic, centralised=centralised, all_actions=all_actions)
        self.critic_2: QCritic | None = None
        if twins:
            self.critic_2 = QCritic(group, env, critic, centralised=centralised, all_actions=all_actions)
        self.register_buffer("uniform", torch.zeros((), dtype=torch.bool))
        self._others: dict[str, Policy] = {}

    @abstractmethod
    def greedy_code(self, parameters: Tensor) -> Tensor:
        """The encoded actions of `act(explore=False)`, `[..., agent, code]`, from `[..., agent, parameter]`."""

    @property
    def critics(self) -> list[QCritic]:
        return [self.critic] if self.critic_2 is None else [self.critic, self.critic_2]

    @property
    def has_critic(self) -> bool:
        return True

    @property
    def critic_reads(self) -> Reads:
        """The critic values the action that the actor takes, so it reads what the actor reads too."""
        if self.critic.centralised:
            return "all"
        return "group" if self.critic.network.cross_agent or self.cross_agent else "agent"

    def networks(self) -> list[tuple[str, Network, bool]]:
        named = zip(("critic", "critic_2"), self.critics)
        return [
            ("actor", self.actor.network, False),
            *((name, critic.network, critic.shared_forward) for name, critic in named),
        ]

    def bind_policies(self, policies: Mapping[str, Policy]) -> None:
        """Sets the other groups' policies, whose actions `value` needs."""
        self._others = {name: policies[name] for name in self.critic.reads if name != self.group.name}

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Q `[..., agent]` of the actions that all agents take without exploration and without action masks.

        Another group's recurrent policy acts from its initial state.

        Raises:
            ConfigError: the critics read a group whose policy was not set.
        """
        name = self.group.name
        codes = {name: self.greedy_code(self.actor(observations[name]))}
        for other in self.critic.reads:
            if other != name:
                codes[other] = self.critic.encode_action(other, self._greedy_action(other, observations[other]))
        encoded = self.critic.encode_observations(observations, state)
        values = [critic(encoded, codes) for critic in self.critics]
        smallest = values[0] if len(values) == 1 else torch.minimum(*values)
        if self.critic.all_actions:
            smallest = (smallest * codes[name]).sum(-1)
        return smallest, None

    @torch.no_grad()
    def _greedy_action(self, group: str, observation: Tensor) -> Tensor:
        policy = self._others.get(group)
        if policy is None:
            raise ConfigError(
                f"the critic of {self.group.name!r} reads the actions of {group!r}, but has no policy of that group; "
                "call bind_policies first"
            )
        shape = (policy.group.n_agents, *policy.group.observation.shape)
        rows = observation.reshape(-1, *shape)
        recurrent = policy.initial_recurrent(len(rows), rows.device)
        action = policy.act(rows, recurrent=recurrent, explore=False).action
        return action.reshape(*observation.shape[: observation.ndim - len(shape)], *action.shape[1:])
