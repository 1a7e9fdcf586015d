"""SeatedPolicy: agents of one group act by policies that were trained apart, as the two players of a match do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor, nn

from marlnb.models.hooks.sites import Site
from marlnb.models.networks.packing import pad, unpad, widest_shape
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy, Reads
from marlnb.specs import GroupSpec

Shape = tuple[int, int] | None


class SeatedPolicy(Policy):
    """One group, some of whose agents act by one policy and the others by another.

    Each policy sees the observations of all agents; what it returns for the others' seats is dropped. An agent's
    sites have its name, as where agents have networks of different kinds: `player/actor/player_0/hidden_1`.

    Random numbers are drawn in the order of the seats, so equal policies play the same games when they swap seats.

    Args:
        group: the agents.
        policies: each acts for the whole group.
        seats: for each policy, the indices of its agents; together they contain every agent once.
    """

    order: Tensor

    def __init__(self, group: GroupSpec, policies: Sequence[Policy], seats: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.group, self.policies, self.seats = group, nn.ModuleList(policies), [list(seat) for seat in seats]
        self.greedy = all(policy.greedy for policy in self._networked or self._members)
        self.recurrent_shape = widest_shape([policy.recurrent_shape for policy in policies])
        self.critic_recurrent_shape = widest_shape([policy.critic_recurrent_shape for policy in policies])
        row_of = {agent: row for row, agent in enumerate(agent for seat in self.seats for agent in seat)}
        self.register_buffer("order", torch.tensor([row_of[k] for k in range(group.n_agents)]), persistent=False)

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        by_seat: dict[int, ActorOutput] = {}
        for k in sorted(range(len(self.seats)), key=self.seats.__getitem__):
            policy = self._members[k]
            entering = _entering(context.recurrent, policy.recurrent_shape)
            by_seat[k] = policy.choose(observation, context._replace(recurrent=entering))
        outputs = [by_seat[k] for k in range(len(self.seats))]
        n_parameters = max(output.logits.shape[-1] for output in outputs)
        logits = [pad_last(output.logits, n_parameters) for output in outputs]
        return ActorOutput(
            action=self._seated([output.action for output in outputs], axis=1),
            log_prob=self._seated([output.log_prob for output in outputs], axis=1),
            logits=self._seated(logits, axis=1),
            recurrent=self._states([output.recurrent for output in outputs], self.recurrent_shape, observation, axis=1),
        )

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """As of each agent's own policy; zeros after shorter ones, and for the agents of a policy without a network."""
        if self.distribution is None:
            return super().logits(observation, recurrent=recurrent)
        observation = self.observe(observation)
        axis, n_parameters = observation.ndim - 1 - len(self.group.observation.shape), self.distribution.n_parameters
        zeros = torch.zeros(*observation.shape[: axis + 1], n_parameters, device=observation.device)

        def run(policy: Policy, entering: Tensor | None) -> tuple[Tensor, Tensor | None]:
            if policy.distribution is None:
                return zeros, None
            logits, state = policy.logits(observation, recurrent=entering)
            return pad_last(logits, n_parameters), state

        return self._each(run, "recurrent_shape", recurrent, observation)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """As of each agent's own policy."""
        return self._each(
            lambda policy, entering: policy.value(observations, state=state, recurrent=entering),
            "critic_recurrent_shape",
            recurrent,
            observations[self.group.name],
        )

    def scale_bytes(self, values: Tensor) -> Tensor:
        return (self._networked or self._members)[0].scale_bytes(values)

    def begin_episodes(self, done: Tensor) -> None:
        for policy in self._members:
            policy.begin_episodes(done)

    @property
    def values_by_state(self) -> bool:
        return all(policy.values_by_state for policy in self._members)

    @property
    def distribution(self) -> ActionDistribution | None:
        """The one with most parameters: filled with zeros, those of the others have the same most likely action."""
        distributions = [policy.distribution for policy in self._networked if policy.distribution is not None]
        return max(distributions, key=lambda distribution: distribution.n_parameters, default=None)

    @property
    def cross_agent(self) -> bool:
        return any(policy.cross_agent for policy in self._members)

    @property
    def has_critic(self) -> bool:
        return all(policy.has_critic for policy in self._members)

    @property
    def critic_reads(self) -> Reads:
        """The widest of the members'."""
        return max((policy.critic_reads for policy in self._members), key=get_args(Reads).index)

    def sites(self) -> list[Site]:
        """The sites of each agent's own policy, the agents in the group's order; actors alone if one has no critic."""
        sites = []
        for agent, name in enumerate(self.group.agents):
            policy = self._members[next(k for k, seat in enumerate(self.seats) if agent in seat)]
            for site in policy.sites():
                row = 0 if site.shared_forward else site.row_of(agent)
                if row is not None and (self.has_critic or site.part == "actor"):
                    sites.append(_of_agent(site, agent, name, row))
        return sites

    @property
    def _members(self) -> list[Policy]:
        return [policy for policy in self.policies if isinstance(policy, Policy)]

    @property
    def _networked(self) -> list[Policy]:
        """Those whose outputs are parameters of a distribution, unlike random agents."""
        return [policy for policy in self._members if policy.distribution is not None]

    def _each(
        self,
        run: Callable[[Policy, Tensor | None], tuple[Tensor, Tensor | None]],
        shape_name: str,
        recurrent: Tensor | None,
        observation: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """The outputs and states of all policies, each at its own agents."""
        axis = observation.ndim - 1 - len(self.group.observation.shape)
        steps = [run(policy, _entering(recurrent, getattr(policy, shape_name))) for policy in self._members]
        states = self._states([after for _, after in steps], getattr(self, shape_name), observation, axis)
        return self._seated([output for output, _ in steps], axis), states

    def _seated(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Of each policy's values those of its agents, in the group's order; `axis` is that of the agents."""
        own = [
            value.index_select(axis, torch.tensor(seat, device=value.device)) for value, seat in zip(values, self.seats)
        ]
        return torch.cat(own, dim=axis).index_select(axis, self.order)

    def _states(self, states: Sequence[Tensor | None], shape: Shape, observation: Tensor, axis: int) -> Tensor | None:
        if shape is None:
            return None
        zeros = torch.zeros(*observation.shape[: axis + 1], *shape, device=observation.device)
        return self._seated([zeros if state is None else pad(state, shape) for state in states], axis)


def pad_last(values: Tensor, size: int) -> Tensor:
    """Zeros after the last axis, up to `size`: policies of one group may have outputs of different widths."""
    return values if values.shape[-1] == size else nn.functional.pad(values, (0, size - values.shape[-1]))


def _entering(recurrent: Tensor | None, shape: Shape) -> Tensor | None:
    return None if recurrent is None or shape is None else unpad(recurrent, shape)


def _of_agent(site: Site, agent: int, name: str, row: int) -> Site:
    """A site for one agent alone, with its name before the layer's, unless the site has it already."""
    parts = site.name.split("/")
    own_name = site.name if name in parts[2:-1] else "/".join([*parts[:2], name, *parts[2:]])
    return replace(site, name=own_name, n_agents=1, shared_forward=False, agents=(agent,), rows=(row,))
