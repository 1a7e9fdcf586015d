"""`AttributionTarget`: which output of which agents is explained by what, and how rows become captum's examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.config import Sources
from marlnb.analysis.attribution.forward import JointInputOutput, OwnInputOutput, last_output, units_by_agent
from marlnb.analysis.attribution.outputs import Output
from marlnb.analysis.data.rows import RowBatch
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec


@dataclass(frozen=True)
class Examples:
    """A batch as captum takes it.

    Attributes:
        score: `(inputs, *extras) -> [example]`.
        inputs: `[example, feature]`.
        extras: further arguments of `score`.
        n_agents: agents in a row of examples; the agents of a row follow one another.
        explained: indices of the explained agents among them.
    """

    score: nn.Module
    inputs: Tensor
    extras: tuple[Any, ...]
    n_agents: int
    explained: Tensor


@dataclass(frozen=True)
class AttributionTarget:
    """One output of some agents of a group, explained by observations or by the units of a site.

    Attributes:
        policy: the group's policy.
        env: the environment.
        output: the explained scalar.
        members: indices of the explained agents within the group.
        sources: own (each agent's own observation or units), all (every agent's) or state (the environment's state,
            with observations held fixed).
        site: the site whose units explain the output; None: observations do.
    """

    policy: Policy
    env: EnvSpec
    output: Output
    members: tuple[int, ...]
    sources: Sources
    site: Site | None = None

    @property
    def stacked(self) -> bool:
        """Whether all agents of a row go through the policy in one pass, each with its own input."""
        site_has_all_agents = self.site is None or (self.site.agents is None and self.site.rows is None)
        return self.sources == "own" and not self.output.of_critic and site_has_all_agents

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose observations the output is computed from."""
        return self.env.group_names if self.output.of_critic else (self.policy.group.name,)

    def inputs(self, batch: RowBatch) -> Tensor:
        """The explaining features: `[row, agent, feature]` for own sources, `[row, feature]` for others."""
        if self.site is not None:
            units = self._units(batch)
            return units if self.sources == "own" else units.flatten(1)
        if self.sources == "state":
            assert batch.state is not None
            features = batch.state.reshape(len(batch.acting), -1)
        elif self.sources == "own":
            features = batch.observations[self.policy.group.name].reshape(*batch.acting.shape, -1)
        else:
            features = self._joint_observation(batch)
        return features if features.is_floating_point() else features.float()

    def examples(self, batch: RowBatch, inputs: Tensor) -> Examples:
        """The rows as examples, agent by agent within a row."""
        n_rows, n_agents = len(inputs), self.policy.group.n_agents
        if self.stacked:
            read = [batch.action, batch.recurrent, batch.action_mask]
            if self.site is not None:
                read.append(batch.observations[self.policy.group.name].reshape(*batch.acting.shape, -1))
            extras = tuple(None if x is None else x.flatten(0, 1) for x in read)  # [row * agent, ...]
            explained = torch.tensor(self.members, device=inputs.device)
            score = OwnInputOutput(self.policy, self.output, self.site)
            return Examples(score, inputs.flatten(0, 1), extras, n_agents, explained)
        n = len(self.members)
        members = torch.tensor(self.members, device=inputs.device)
        flat = inputs[:, members].flatten(0, 1) if inputs.ndim == 3 else inputs.repeat_interleave(n, dim=0)
        fixed = (batch.action, batch.recurrent, batch.action_mask, batch.state, batch.critic_recurrent)
        repeated = [None if x is None else x.repeat_interleave(n, dim=0) for x in fixed]
        if self.site is not None or self.sources == "state":
            repeated.append(self._joint_observation(batch).repeat_interleave(n, dim=0))
        joint = JointInputOutput(self.policy, self.output, self.env, self.site, by_state=self.sources == "state")
        return Examples(joint, flat, (members.repeat(n_rows), *repeated), n, torch.arange(n, device=flat.device))

    def baseline(self, baseline: Tensor, n_rows: int) -> Tensor:
        """A baseline `[agent, feature]` (own sources) or `[feature]` (others), as `[example, feature]`."""
        if self.sources != "own":
            return baseline.expand(n_rows * len(self.members), -1)
        by_agent = baseline if self.stacked else baseline[list(self.members)]
        return by_agent.expand(n_rows, *by_agent.shape).reshape(n_rows * by_agent.shape[0], -1)

    def _joint_observation(self, batch: RowBatch) -> Tensor:
        """Every agent's features, `[row, feature]`."""
        return torch.cat([batch.observations[name].flatten(1) for name in self.groups], dim=-1)

    @torch.no_grad()
    def _units(self, batch: RowBatch) -> Tensor:
        """The site's activations: `[row, agent of the group, unit]`, of all rows of its module for sources="all"."""
        policy, site = self.policy, self.site
        assert site is not None

        def run() -> object:
            if self.output.of_critic:
                return policy.value(batch.observations, state=batch.state, recurrent=batch.critic_recurrent)
            return policy.logits(batch.observations[policy.group.name], recurrent=batch.recurrent)

        activations = last_output(site, run)
        if activations is None:
            raise AnalysisError(
                f"site {site.name!r} is not used when computing the {self.output.to}, so its attribution is zero "
                "by construction"
            )
        return activations if self.sources == "all" else units_by_agent(site, activations, policy.group.n_agents)


def observation_sources(
    policy: Policy, output: Output, requested: Sources | None, state_shape: tuple[int, ...] | None
) -> Sources:
    """Whose observations an output is attributed to, or the environment's state.

    Raises:
        AnalysisError: sources that the output cannot be attributed to.
    """
    if requested == "own" and output.of_critic:
        raise AnalysisError(
            "sources='own' does not apply to a value: a critic may read every agent's observation; 'all'"
        )
    if requested == "own" and policy.cross_agent:
        raise AnalysisError(
            f"sources='own' does not apply to {policy.group.name!r}: its agents read each other's observations; use "
            "sources='all'"
        )
    if requested == "state" and not output.of_critic:
        raise AnalysisError("sources='state' applies to values and critics' units; an actor reads observations")
    if requested == "state" and state_shape is None:
        raise AnalysisError("sources='state': this environment has no state; use sources='all'")
    if output.of_critic and policy.values_by_state:
        return requested or "state"
    return requested or ("all" if output.of_critic or policy.cross_agent else "own")


def site_sources(policy: Policy, output: Output, site: Site) -> Sources:
    """ "all" if one agent's output may depend on another agent's units at the site, else "own"."""
    if site.shared_forward or site.agents is not None:
        return "own"
    in_actor = site.part == "actor"
    if in_actor and output.of_critic:
        return "all"  # a value computed from the actors' units, which a mixer may join
    return "all" if policy.cross_agent and in_actor else "own"


def explained_by_all_units(policy: Policy, site: Site) -> bool:
    """Whether one agent's output may depend on all agents' units: those of actors that read other agents' inputs."""
    of_all_agents = site.agents is None and not site.shared_forward
    return policy.cross_agent and of_all_agents and site.part == "actor"


def check_order(policy: Policy, output: Output, site: Site) -> None:
    """Raises AnalysisError if an explained unit comes before the site that is to explain it."""
    if output.to != "unit":
        return
    names = [candidate.name for candidate in policy.sites()]
    if names.index(site.name) >= names.index(output.site):
        raise AnalysisError(
            f"units of {output.site!r} do not depend on those of {site.name!r}, which is computed later"
        )
