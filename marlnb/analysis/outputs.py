"""The scalars of a policy that can be explained, as modules that captum can differentiate and walk.

captum thinks in examples: a batch of flat inputs, one number out for each. Here an example is one agent at one row,
and two layouts cover every case. `OwnOutput` runs all agents of a row together, each on its own observation, which is
exact where no agent's output reads another's observation: one pass explains them all. `AnyOutput` shows one example
the observations of every agent, so that what one agent's output owes to another's observation can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from marlnb.errors import AnalysisError, unknown
from marlnb.models.distributions import Deterministic, Gaussian, Squash
from marlnb.models.policy import Policy
from marlnb.specs import ActionSpec, EnvSpec

To = Literal["action", "logit", "log_prob", "value"]
Target = int | str | tuple[int, int] | None


@dataclass(frozen=True)
class Output:
    """Which number of a policy is explained.

    Attributes:
        to: action (the logit of the action taken; the mean, for continuous actions), logit (of a fixed choice),
            log_prob (of the action taken or of a fixed choice), value (the critic's).
        component: of a multi-discrete or continuous action; None for all.
        choice: fixed, or None for the one taken.
    """

    to: To
    component: int | None = None
    choice: int | None = None

    @property
    def units(self) -> str:
        return {"value": "reward", "log_prob": "nats"}.get(self.to, "logits")

    def describe(self, spec: ActionSpec) -> str:
        """The scalar in words, as `logit of move_left`."""
        if self.to == "value":
            return "value"
        what = "log-probability" if self.to == "log_prob" else "mean" if spec.kind == "continuous" else "logit"
        if self.choice is not None:
            chosen = _name(spec, self.choice) if spec.kind == "discrete" else f"choice {self.choice}"
            where = f" in component {self.component}" if spec.kind == "multi_discrete" else ""
            return f"{what} of {chosen}{where}"
        if self.component is not None:
            return f"{what} of {_name(spec, self.component)}"
        return f"{what} of the action taken"


def resolve_output(spec: ActionSpec, to: str, target: Target) -> Output:
    """What `to` and `target` name, checked against the group's action.

    Raises:
        AnalysisError: an unknown `to`, a target that the action does not have, or one that is missing.
    """
    if to not in ("action", "logit", "log_prob", "value"):
        raise AnalysisError(unknown("output to attribute", to, ("action", "logit", "log_prob", "value")))
    if to == "value":
        if target is not None:
            raise AnalysisError(f"a value has no target; got target={target!r}")
        return Output("value")
    if spec.kind == "discrete":
        if to == "logit" and target is None:
            raise AnalysisError(
                f"which logit? target must be one of {_choices(spec)}; to='action' explains the one taken"
            )
        choice = None if target is None or to == "action" else _index(spec, target, spec.n[0], "choice")
        if to == "action" and target is not None:
            raise AnalysisError(
                f"to='action' explains the action taken; for a fixed one: to='logit', target={target!r}"
            )
        return Output(to, None, choice)  # type: ignore[arg-type]
    if spec.kind == "continuous":
        if to == "log_prob":
            if target is not None:
                raise AnalysisError("the log-probability of a continuous action is that of the action taken: no target")
            return Output("log_prob")
        if target is None and spec.n_components > 1:
            raise AnalysisError(f"which component's mean? target must be one of {_choices(spec)}")
        return Output(to, 0 if target is None else _index(spec, target, spec.n_components, "component"))  # type: ignore[arg-type]
    return _resolve_multi_discrete(spec, to, target)


def _resolve_multi_discrete(spec: ActionSpec, to: str, target: Target) -> Output:
    if isinstance(target, tuple):
        component, choice = target
        component = _index(spec, component, spec.n_components, "component")
        if not 0 <= choice < spec.n[component]:
            raise AnalysisError(f"component {component} has choices 0 to {spec.n[component] - 1}; got {choice}")
        return Output(to, component, choice)  # type: ignore[arg-type]
    if to == "logit":
        raise AnalysisError(f"target must be (component, choice), with choices {spec.n}; got {target!r}")
    return Output(to, None if target is None else _index(spec, target, spec.n_components, "component"))  # type: ignore[arg-type]


def _choices(spec: ActionSpec) -> list[Any]:
    return list(spec.names) or list(range(spec.n[0] if spec.kind == "discrete" else spec.n_components))


def _name(spec: ActionSpec, index: int) -> str:
    word = "choice" if spec.kind == "discrete" else "component"
    return spec.names[index] if spec.names else f"{word} {index}"


def _index(spec: ActionSpec, target: Target, count: int, word: str) -> int:
    if isinstance(target, str):
        if target not in spec.names:
            raise AnalysisError(unknown(f"{word} of the action", target, spec.names or [str(k) for k in range(count)]))
        return spec.names.index(target)
    if not isinstance(target, int) or not 0 <= target < count:
        raise AnalysisError(f"no {word} {target!r} of the action; it has {count}: {_choices(spec)}")
    return target


def pick(logits: Tensor, action: Tensor, spec: ActionSpec, output: Output) -> Tensor:
    """The scalar that `output` names: logits `[..., parameter]`, action `[...(, component)]` -> `[...]`."""
    if spec.kind == "continuous":
        return logits[..., output.component]
    chosen = action.unsqueeze(-1) if spec.kind == "discrete" else action
    terms = []
    for component, parameters in enumerate(logits.split(list(spec.n), dim=-1)):
        if spec.kind == "multi_discrete" and output.component not in (None, component):
            continue
        scores = parameters.log_softmax(-1) if output.to == "log_prob" else parameters
        if output.choice is not None:
            terms.append(scores[..., output.choice])
        else:
            terms.append(scores.gather(-1, chosen[..., component : component + 1].long()).squeeze(-1))
    return torch.stack(terms).sum(0)


class OwnOutput(nn.Module):
    """`[row * agent, feature]` -> `[row * agent]`: every agent's scalar, from its own observation alone."""

    def __init__(self, policy: Policy, output: Output) -> None:
        super().__init__()
        self.policy, self.output = policy, output

    def forward(self, observation: Tensor, action: Tensor, recurrent: Tensor | None, mask: Tensor | None) -> Tensor:
        group = self.policy.group
        n = group.n_agents
        seen = observation.view(-1, n, *group.observation.shape)
        taken = action.view(-1, n, *action.shape[1:])
        held = (None if x is None else x.view(-1, n, *x.shape[1:]) for x in (recurrent, mask))
        return actor_scalar(self.policy, self.output, seen, taken, *held).reshape(-1)


class AnyOutput(nn.Module):
    """`[example, every agent's features]` -> `[example]`: the scalar of the agent that each example names.

    The actor sees its own group's observations, a critic those of every group of `env`, in the order of `env.agents`.
    """

    def __init__(self, policy: Policy, output: Output, env: EnvSpec) -> None:
        super().__init__()
        self.policy, self.output, self.env = policy, output, env

    def forward(
        self,
        observation: Tensor,
        agent: Tensor,
        action: Tensor,
        recurrent: Tensor | None,
        mask: Tensor | None,
        state: Tensor | None,
    ) -> Tensor:
        group = self.policy.group
        if self.output.to == "value":
            seen = split_observation(observation, self.env)
            scalars, _ = self.policy.value(seen, state=state, recurrent=recurrent)
        else:
            own = observation.view(-1, group.n_agents, *group.observation.shape)
            scalars = actor_scalar(self.policy, self.output, own, action, recurrent, mask)
        return scalars.gather(-1, agent.unsqueeze(-1)).squeeze(-1)


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
