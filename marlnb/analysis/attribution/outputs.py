"""Which number of a policy is explained: an action's logit or log-probability, a value, or a hidden unit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.sites import Site
from marlnb.specs import ActionSpec

To = Literal["action", "logit", "log_prob", "value", "unit"]
Target = int | str | tuple[int, int] | tuple[str, int] | None


@dataclass(frozen=True)
class Output:
    """Which number of a policy is explained.

    Attributes:
        to: action (the logit of the action taken; the mean, for continuous actions), logit (of a fixed choice),
            log_prob (of the action taken or of a fixed choice), value (the critic's), unit (a hidden one).
        component: of a multi-discrete or continuous action; None for all.
        choice: fixed, or None for the one taken.
        site, unit: of a hidden unit.
        continuous: the action is: a mean is explained, in the units in which the network gives it, and no logit.
    """

    to: To
    component: int | None = None
    choice: int | None = None
    site: str = ""
    unit: int = 0
    continuous: bool = False

    @property
    def units(self) -> str:
        other = "action" if self.continuous else "logits"
        return {"value": "reward", "log_prob": "nats", "unit": "activation"}.get(self.to, other)

    @property
    def of_critic(self) -> bool:
        """Whether it is computed when values are, from what critics read."""
        return self.to == "value" or (self.to == "unit" and self.site.split("/")[1:2] != ["actor"])

    def describe(self, spec: ActionSpec) -> str:
        """The scalar in words, as `logit of move_left`."""
        if self.to == "value":
            return "value"
        if self.to == "unit":
            return f"unit {self.unit} of {self.site}"
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
    if to not in get_args(To):
        raise AnalysisError(unknown("output to attribute", to, get_args(To)))
    if to == "unit":
        if (
            not isinstance(target, tuple)
            or len(target) != 2
            or not isinstance(target[0], str)
            or not isinstance(target[1], Integral)
        ):
            raise AnalysisError(f"which unit? target must be (site, unit), as ('x/actor/hidden_1', 3); got {target!r}")
        return Output("unit", site=target[0], unit=int(target[1]))
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
        component = 0 if target is None else _index(spec, target, spec.n_components, "component")
        return Output(to, component, continuous=True)  # type: ignore[arg-type]
    return _resolve_multi_discrete(spec, to, target)


def _resolve_multi_discrete(spec: ActionSpec, to: str, target: Target) -> Output:
    if isinstance(target, tuple):
        component, choice = target
        if not isinstance(choice, int):
            raise AnalysisError(f"target must be (component, choice), with choices {spec.n}; got {target!r}")
        component = _index(spec, component, spec.n_components, "component")
        if not 0 <= choice < spec.n[component]:
            raise AnalysisError(f"component {component} has choices 0 to {spec.n[component] - 1}; got {choice}")
        return Output(to, component, choice)  # type: ignore[arg-type]
    if to == "logit":
        raise AnalysisError(f"target must be (component, choice), with choices {spec.n}; got {target!r}")
    return Output(to, None if target is None else _index(spec, target, spec.n_components, "component"))  # type: ignore[arg-type]


def find_site(sites: Iterable[Site], name: str) -> Site:
    """The site of exactly that name.

    Raises:
        AnalysisError: there is none.
    """
    have = list(sites)
    for site in have:
        if site.name == name:
            return site
    raise AnalysisError(unknown("site of this policy", name, [site.name for site in have]))


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
