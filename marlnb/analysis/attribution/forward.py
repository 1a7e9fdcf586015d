"""The scalars that are explained, as modules that captum can differentiate and walk.

captum thinks in examples: a batch of flat inputs, one number out for each. Here an example is one agent at one row,
and two layouts cover every case. `OwnOutput` runs all agents of a row together, each on its own input, which is exact
where no agent's output reads another's: one pass explains them all. `AnyOutput` shows one example the observations of
every agent, so that what one agent's output owes to another's observation can be measured.

The input is the observation, or a site's activations: these are then put in the place of what the site's module gives,
so that every method that explains by observations explains by hidden units as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.outputs import Output, find_site, pick
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.distributions import Deterministic, Gaussian, Squash
from marlnb.models.policies.policy import Policy
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec

Hook = Callable[[nn.Module, object, Tensor], Tensor | None]


class OwnOutput(nn.Module):
    """`[row * agent, feature]` -> `[row * agent]`: every agent's scalar, from its own observation, or its own units at
    `site`, alone."""

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
        seen = inputs if observation is None else observation
        seen = seen.view(-1, n, *group.observation.shape)
        taken = action.view(-1, n, *action.shape[1:])
        held = [None if x is None else x.view(-1, n, *x.shape[1:]) for x in (recurrent, mask)]
        if self.site is None:
            seen = as_read(self.policy, seen, group)
            return actor_scalar(self.policy, self.output, seen, taken, *held).reshape(-1)
        with hooked(self.site.module, lambda module, given, output: inputs.view(-1, n, inputs.shape[-1])):
            return actor_scalar(self.policy, self.output, seen, taken, *held).reshape(-1)


class AnyOutput(nn.Module):
    """`[example, feature]` -> `[example]`: the scalar of the agent that each example names.

    The features are every agent's observation: the actor sees its own group's, a critic those of every group of `env`,
    in the order of `env.agents`. With a `site` they are units: those of the example's agent, or of all of the site's
    agents, whichever number there are. With `by_state` they are the environment's state.
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
        seen = inputs if observation is None else observation
        if self.by_state:
            state = inputs.unflatten(-1, self.env.state_shape or ())
        if self.site is None:
            scalars = self._scalars(seen, action, recurrent, mask, state, critic_recurrent)
        else:
            with hooked(self.site.module, put_in_place(self.site, inputs, agent)):
                scalars = self._scalars(seen, action, recurrent, mask, state, critic_recurrent)
        return scalars.gather(-1, agent.unsqueeze(-1)).squeeze(-1)

    def _scalars(
        self,
        flat: Tensor,
        action: Tensor,
        recurrent: Tensor | None,
        mask: Tensor | None,
        state: Tensor | None,
        critic_recurrent: Tensor | None,
    ) -> Tensor:
        """`[example, agent]`."""
        group = self.policy.group
        if self.output.of_critic:
            parts = split_observation(flat, self.env)
            seen = {name: as_read(self.policy, part, self.env.group(name)) for name, part in parts.items()}
            return critic_scalar(self.policy, self.output, seen, state, critic_recurrent)
        own = as_read(self.policy, flat.view(-1, group.n_agents, *group.observation.shape), group)
        return actor_scalar(self.policy, self.output, own, action, recurrent, mask)


def as_read(policy: Policy, observation: Tensor, group: GroupSpec) -> Tensor:
    """Observations of a group as the policy takes them: floats that stand for bytes are told from other floats."""
    floats_of_bytes = group.observation.dtype == "uint8" and observation.is_floating_point()
    return policy.of_bytes(observation) if floats_of_bytes else observation


@contextmanager
def hooked(module: nn.Module, hook: Hook) -> Iterator[None]:
    """Inside the block the module's output goes through `hook`."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def owing() -> Iterator[None]:
    """Inside the block torch's word for an output that what it is explained by does not reach is put in ours."""
    try:
        yield
    except RuntimeError as error:
        if "not have been used in the graph" not in str(error):
            raise
        raise AnalysisError(
            "the output does not depend on what it was to be explained by: a critic that reads nothing "
            "but the environment's state is explained by sources='state' (and one that does not read it owes it "
            "nothing), and units that only leave the step act in the next"
        ) from error


def put_in_place(site: Site, units: Tensor, agent: Tensor) -> Hook:
    """A hook that puts `units` in the place of the site's activations.

    Args:
        units: `[example, unit]` of each example's `agent` `[example]`, or `[example, every row's units]`.
    """

    def put(module: nn.Module, given: object, output: Tensor) -> Tensor:
        if units.shape[-1] != output.shape[-1]:
            return units.view(output.shape)
        if output.shape[-2] == 1:
            return units.unsqueeze(-2)
        places = [site.row_of(k) for k in range(int(agent.max()) + 1)]
        row = torch.tensor([0 if place is None else place for place in places], device=output.device)[agent]
        here = row.unsqueeze(-1) == torch.arange(output.shape[-2], device=output.device)
        return torch.where(here.unsqueeze(-1), units.unsqueeze(-2), output)

    return put


def actor_scalar(
    policy: Policy, output: Output, observation: Tensor, action: Tensor, recurrent: Tensor | None, mask: Tensor | None
) -> Tensor:
    """The actor's scalar `[row, agent]` for observations `[row, agent, *shape]`.

    Raises:
        AnalysisError: the policy is of a kind whose output cannot be differentiated.
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
        return distribution.log_prob(parameters, unbounded(action, policy.group.action, distribution.squash))
    return pick(distribution.mask(parameters, mask), action, policy.group.action, output)


def critic_scalar(
    policy: Policy, output: Output, seen: Mapping[str, Tensor], state: Tensor | None, recurrent: Tensor | None
) -> Tensor:
    """The value `[row, agent]`, or a unit inside the critic, from every group's observations `[row, agent, *shape]`."""
    if output.to == "unit":
        return unit_scalar(policy, output, lambda: policy.value(seen, state=state, recurrent=recurrent))
    return policy.value(seen, state=state, recurrent=recurrent)[0]


def unit_scalar(policy: Policy, output: Output, run: Callable[[], object]) -> Tensor:
    """A hidden unit `[row, agent]` while `run` runs the policy; zero for agents that its site is not of."""
    site = find_site(policy.sites(), output.site)
    seen: list[Tensor] = []
    with hooked(site.module, lambda module, given, found: seen.append(found)):
        run()
    if not seen:
        raise AnalysisError(f"the site {site.name!r} did not fire, so no unit of it can be explained")
    units = site.own_rows(seen[-1])[..., output.unit]
    if site.agents is None:
        return units
    spread = units.new_zeros(*units.shape[:-1], policy.group.n_agents)
    return spread.index_copy(-1, torch.tensor(site.agents, device=units.device), units)


def unbounded(action: Tensor, spec: ActionSpec, squash: Squash) -> Tensor:
    """The value that was squashed or clipped into a continuous action `[..., component]`; near the bounds, the largest
    that float32 tells apart from them."""
    low, high = (torch.tensor(ends, device=action.device) for ends in (spec.low, spec.high))
    unit = (2 * action - low - high) / (high - low)
    return unit.clamp(-1 + 1e-6, 1 - 1e-6).atanh() if squash == "tanh" else unit


def split_observation(flat: Tensor, env: EnvSpec) -> Mapping[str, Tensor]:
    """`[example, every agent's features]` -> per group `[example, agent, *shape]`."""
    sizes = [group.n_agents * group.observation.size for group in env.groups]
    parts = flat.split(sizes, dim=-1)
    return {g.name: part.reshape(-1, g.n_agents, *g.observation.shape) for g, part in zip(env.groups, parts)}
