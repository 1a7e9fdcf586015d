"""Question: which output of which agents is explained by what, and how a batch of rows becomes captum's examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.forward import AnyOutput, OwnOutput, hooked
from marlnb.analysis.attribution.outputs import Output, find_site
from marlnb.analysis.data.rows import RowBatch
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec

Sources = Literal["own", "all", "state"]


@dataclass(frozen=True)
class Examples:
    """A batch as captum takes it.

    Attributes:
        score: `(inputs, *extras) -> [example]`; inputs `[example, feature]`.
        agents: agents in a row of examples, which lie row by row.
        chosen: which of them are explained, as places among `agents`.
    """

    score: nn.Module
    inputs: Tensor
    extras: tuple[Any, ...]
    agents: int
    chosen: Tensor


@dataclass(frozen=True)
class Question:
    """One output of some agents of a group, explained by observations or by the units of a site.

    Attributes:
        members: indices of the agents explained, within the group.
        sources: own (each agent's own observation or units), all (every agent's) or state (the environment's state, the
            observations held as they were).
        site: by whose units; None: by observations.
    """

    policy: Policy
    env: EnvSpec
    output: Output
    members: tuple[int, ...]
    sources: Sources
    site: Site | None = None

    @property
    def stacked(self) -> bool:
        """Whether all agents of a row go through the policy at once, each on what is its own."""
        whole = self.site is None or (self.site.agents is None and self.site.rows is None)
        return self.sources == "own" and not self.output.of_critic and whole

    @property
    def groups(self) -> tuple[str, ...]:
        """Whose observations the output is computed from."""
        return self.env.group_names if self.output.of_critic else (self.policy.group.name,)

    def inputs(self, moments: RowBatch) -> Tensor:
        """What the output is explained by: `[row, agent, feature]` for own sources, `[row, feature]` for others."""
        n_rows = moments.acting.shape[0]
        if self.site is not None:
            units = self._units(moments)
            return units if self.sources == "own" else units.flatten(1)
        if self.sources == "state":
            assert moments.state is not None
            seen = moments.state.reshape(n_rows, -1)
        elif self.sources == "own":
            seen = moments.observations[self.policy.group.name].reshape(n_rows, self.policy.group.n_agents, -1)
        else:
            seen = self._joint(moments)
        return seen if seen.is_floating_point() else seen.float()

    def examples(self, moments: RowBatch, inputs: Tensor) -> Examples:
        """The rows as examples, agent by agent within a row."""
        n_rows, n_agents = len(inputs), self.policy.group.n_agents
        if self.stacked:
            own = (moments.action, moments.recurrent, moments.action_mask)
            extras = tuple(_stack(x) for x in own)
            if self.site is not None:
                seen = moments.observations[self.policy.group.name]
                extras += (seen.reshape(n_rows * n_agents, -1),)
            flat = inputs.reshape(n_rows * n_agents, -1)
            chosen = torch.tensor(self.members, device=flat.device)
            return Examples(OwnOutput(self.policy, self.output, self.site), flat, extras, n_agents, chosen)
        n = len(self.members)
        members = torch.tensor(self.members, device=inputs.device)
        if inputs.ndim == 3:
            flat = inputs[:, members].reshape(n_rows * n, -1)
        else:
            flat = inputs.repeat_interleave(n, dim=0)
        held = (moments.action, moments.recurrent, moments.action_mask, moments.state, moments.critic_recurrent)
        repeated = [None if x is None else x.repeat_interleave(n, dim=0) for x in held]
        if self.site is not None or self.sources == "state":
            repeated.append(self._joint(moments).repeat_interleave(n, dim=0))
        score = AnyOutput(self.policy, self.output, self.env, self.site, by_state=self.sources == "state")
        return Examples(score, flat, (members.repeat(n_rows), *repeated), n, torch.arange(n, device=flat.device))

    def reference(self, baseline: Tensor, n_rows: int) -> Tensor:
        """A baseline `[agent, feature]` (own) or `[feature]` (others) for each example, `[example, feature]`."""
        if self.sources != "own":
            return baseline.expand(n_rows * len(self.members), -1)
        own = baseline if self.stacked else baseline[list(self.members)]
        return own.expand(n_rows, *own.shape).reshape(n_rows * own.shape[0], -1)

    def _joint(self, moments: RowBatch) -> Tensor:
        """Every agent's features, `[row, feature]`."""
        n_rows = moments.acting.shape[0]
        return torch.cat([moments.observations[name].reshape(n_rows, -1) for name in self.groups], dim=-1)

    @torch.no_grad()
    def _units(self, moments: RowBatch) -> Tensor:
        """The site's activations: `[row, agent of the group, unit]`, of all rows of its module for sources="all"."""
        assert self.site is not None
        seen: list[Tensor] = []
        with hooked(self.site.module, lambda module, given, found: seen.append(found)):
            run(self.policy, self.output, moments)
        if not seen:
            raise AnalysisError(
                f"the site {self.site.name!r} does not fire when {self.output.to} is computed, which owes it nothing"
            )
        if self.sources == "all":
            return seen[-1]
        own = self.site.own_rows(seen[-1])
        if self.site.agents is None:
            return own
        spread = own.new_zeros(len(own), self.policy.group.n_agents, own.shape[-1])
        spread[:, list(self.site.agents)] = own
        return spread


def run(policy: Policy, output: Output, moments: RowBatch) -> None:
    """Runs the part of a policy that an output is of."""
    if output.of_critic:
        policy.value(moments.observations, state=moments.state, recurrent=moments.critic_recurrent)
    else:
        policy.logits(moments.observations[policy.group.name], recurrent=moments.recurrent)


def site_sources(policy: Policy, output: Output, site: Site) -> Sources:
    """Whether one agent's output may depend on another's units at a site."""
    if site.shared_forward or site.agents is not None:
        return "own"
    in_critic = site.name.split("/")[1:2] != ["actor"]
    if in_critic or not output.of_critic:
        return "all" if policy.cross_agent and not in_critic else "own"
    return "all"  # a value that is made of the actor's units: of all agents', where a mixer joins them


def units_of_all(policy: Policy, site: Site) -> bool:
    """Whether one agent's output may owe something to the units of all: those of actors that hear one another."""
    shared = site.agents is None and not site.shared_forward
    return policy.cross_agent and shared and site.name.split("/")[1:2] == ["actor"]


def check_order(policy: Policy, output: Output, site: Site) -> None:
    """Raises AnalysisError for a unit that comes before the site by which it is to be explained."""
    if output.to != "unit":
        return
    names = [found.name for found in policy.sites()]
    if names.index(site.name) >= names.index(find_site(policy.sites(), output.site).name):
        raise AnalysisError(f"units of {output.site!r} do not depend on those of {site.name!r}, which fires later")


def _stack(x: Tensor | None) -> Tensor | None:
    """`[row, agent, ...]` -> `[row * agent, ...]`."""
    return None if x is None else x.reshape(-1, *x.shape[2:])
