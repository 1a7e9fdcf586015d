"""Forward passes to the explained scalar, as modules that captum can differentiate and hook.

captum works on examples: a batch of flat inputs with one number out for each. Here an example is one agent at one row.
`OwnInputOutput` runs all agents of a row together, each on its own input. This is exact if no agent's output reads
another agent's input, and one pass then explains them all. `JointInputOutput` gives each example the observations of
all agents, so that the influence of one agent's observation on another's output can be measured.

The input is the observation, or a site's activations, which then replace the output of the site's module. So every
method that explains by observations also explains by hidden units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.outputs import Output, find_site, pick
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.distributions import Deterministic, Gaussian
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec


class OwnInputOutput(nn.Module):
    """`[row * agent, feature]` -> `[row * agent]`: each agent's scalar from its own observation, or its own units."""

    def __init__(self, policy: Policy, output: Output, site: Site | None = None) -> None:
        super().__init__()
        self.policy, self.output, self.site = policy, output, site

    def forward(
        self,
        inputs: Tensor,
        action: Tensor,
        recurrent: Tensor | None,
        mask: Tensor | None,
        observation: Tensor | None = None,
    ) -> Tensor:
        group = self.policy.group
        n = group.n_agents
        flat = inputs if observation is None else observation
        observation = flat.view(-1, n, *group.observation.shape)
        action = action.view(-1, n, *action.shape[1:])
        recurrent, mask = (None if x is None else x.view(-1, n, *x.shape[1:]) for x in (recurrent, mask))
        if self.site is None:
            observation = as_policy_input(self.policy, observation, group)
        with replaced_units(self.site, lambda site, output: inputs.view(-1, n, inputs.shape[-1])):
            return actor_scalar(self.policy, self.output, observation, action, recurrent, mask).reshape(-1)


class JointInputOutput(nn.Module):
    """`[example, feature]` -> `[example]`: the scalar of each example's agent, from the inputs of all agents.

    The features are every agent's observation: the actor reads those of its own group, a critic those of every group of
    `env`, in the order of `env.agents`. With a `site` they are units: those of the example's agent, or of all agents of
    the site. With `by_state` they are the environment's state.
    """

    def __init__(
        self, policy: Policy, output: Output, env: EnvSpec, site: Site | None = None, *, by_state: bool = False
    ) -> None:
        super().__init__()
        self.policy, self.output, self.env, self.site, self.by_state = policy, output, env, site, by_state

    def forward(
        self,
        inputs: Tensor,
        agent: Tensor,
        action: Tensor,
        recurrent: Tensor | None,
        mask: Tensor | None,
        state: Tensor | None,
        critic_recurrent: Tensor | None = None,
        observation: Tensor | None = None,
    ) -> Tensor:
        policy, output, flat = self.policy, self.output, inputs if observation is None else observation
        if self.by_state:
            state = inputs.unflatten(-1, self.env.state_shape or ())
        groups = self.env.groups if output.of_critic else (policy.group,)
        parts = flat.split([group.n_agents * group.observation.size for group in groups], dim=-1)
        observations = {
            group.name: as_policy_input(policy, part.reshape(-1, group.n_agents, *group.observation.shape), group)
            for group, part in zip(groups, parts)
        }
        with replaced_units(self.site, partial(place_units, inputs, agent)):
            if output.of_critic:  # scalars: [example, agent]
                scalars = critic_scalar(policy, output, observations, state, critic_recurrent)
            else:
                scalars = actor_scalar(policy, output, observations[policy.group.name], action, recurrent, mask)
        return scalars.gather(-1, agent.unsqueeze(-1)).squeeze(-1)


def as_policy_input(policy: Policy, observation: Tensor, group: GroupSpec) -> Tensor:
    """Observations as the policy reads them: floats that are byte values are scaled as bytes are."""
    floats_of_bytes = group.observation.dtype == "uint8" and observation.is_floating_point()
    return policy.scale_bytes(observation) if floats_of_bytes else observation


def replaced_units(site: Site | None, replace: Callable[[Site, Tensor], Tensor]) -> AbstractContextManager[object]:
    """Inside the block, `replace` gives the output of the site's module; without a site nothing is replaced."""
    if site is None:
        return nullcontext()
    return site.module.register_forward_hook(lambda module, args, output: replace(site, output))


def last_output(site: Site, run: Callable[[], object]) -> Tensor | None:
    """The latest output of the site's module while `run` runs the policy; None if the module was not used."""
    outputs: list[Tensor] = []
    with site.module.register_forward_hook(lambda module, args, output: outputs.append(output)):
        run()
    return outputs[-1] if outputs else None


def units_by_agent(site: Site, output: Tensor, n_agents: int) -> Tensor:
    """A site's activations `[row, agent of the group, unit]`; zero for agents that it does not belong to.

    Args:
        output: of the site's module.
    """
    units = site.select_agents(output)
    if site.agents is None:
        return units
    by_agent = units.new_zeros(*units.shape[:-2], n_agents, units.shape[-1])
    return by_agent.index_copy(-2, torch.tensor(site.agents, device=units.device), units)


@contextmanager
def explain_disconnected_outputs() -> Iterator[None]:
    """Inside the block, torch's error for an output that the inputs do not reach becomes an AnalysisError."""
    try:
        yield
    except RuntimeError as error:
        if "not have been used in the graph" not in str(error):
            raise
        raise AnalysisError(
            "the output does not depend on these inputs. A critic that reads only the environment's state needs "
            "sources='state'; units that only enter the recurrent state affect the next step, not this one"
        ) from error


def place_units(units: Tensor, agent: Tensor, site: Site, output: Tensor) -> Tensor:
    """A site's activations with other units in their place.

    Args:
        units: `[example, unit]` of each example's `agent` `[example]`, or `[example, units of all rows]`.
        output: of the site's module.
    """
    if units.shape[-1] != output.shape[-1]:
        return units.view(output.shape)
    if output.shape[-2] == 1:
        return units.unsqueeze(-2)
    rows = [site.row_of(k) or 0 for k in range(int(agent.max()) + 1)]
    row = torch.tensor(rows, device=output.device)[agent]
    of_agent = row.unsqueeze(-1) == torch.arange(output.shape[-2], device=output.device)
    return torch.where(of_agent.unsqueeze(-1), units.unsqueeze(-2), output)


def actor_scalar(
    policy: Policy, output: Output, observation: Tensor, action: Tensor, recurrent: Tensor | None, mask: Tensor | None
) -> Tensor:
    """The actor's scalar `[row, agent]` for observations `[row, agent, *shape]`.

    Raises:
        AnalysisError: the policy's output cannot be differentiated.
    """
    distribution = policy.distribution
    if distribution is None:
        raise AnalysisError(f"{type(policy).__name__} has no actor whose output could be attributed")
    if output.to == "unit":
        return unit_scalar(policy, output, lambda: policy.logits(observation, recurrent=recurrent))
    parameters, _ = policy.logits(observation, recurrent=recurrent)
    if output.to != "log_prob":
        return pick(parameters, action, policy.group.action, output)
    if isinstance(distribution, Deterministic):
        raise AnalysisError(
            f"the policy of {policy.group.name!r} is deterministic: its actions have no log-probability"
        )
    if isinstance(distribution, Gaussian):
        return distribution.log_prob(parameters, distribution.stored(action))
    return pick(distribution.mask(parameters, mask), action, policy.group.action, output)


def critic_scalar(
    policy: Policy, output: Output, observations: Mapping[str, Tensor], state: Tensor | None, recurrent: Tensor | None
) -> Tensor:
    """The value `[row, agent]`, or a unit of the critic, from every group's observations `[row, agent, *shape]`."""
    if output.to == "unit":
        return unit_scalar(policy, output, lambda: policy.value(observations, state=state, recurrent=recurrent))
    return policy.value(observations, state=state, recurrent=recurrent)[0]


def unit_scalar(policy: Policy, output: Output, run: Callable[[], object]) -> Tensor:
    """A hidden unit `[row, agent]` while `run` runs the policy; zero for agents that its site does not belong to."""
    site = find_site(policy.sites(), output.site)
    activations = last_output(site, run)
    if activations is None:
        raise AnalysisError(
            f"site {site.name!r} was not used in the forward pass, so none of its units can be explained"
        )
    return units_by_agent(site, activations, policy.group.n_agents)[..., output.unit]
