"""`Output`, the scalar that is explained: an action's logit or log-probability, a value, or a hidden unit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from marlnb.errors import AnalysisError, unknown
from marlnb.models.hooks.sites import Site, part_of
from marlnb.specs import ActionSpec

To = Literal["action", "logit", "log_prob", "value", "unit"]
Target = int | str | tuple[int, int] | tuple[str, int] | None


@dataclass(frozen=True)
class Output:
    """One scalar output of a policy for each agent.

    Attributes:
        to: action (the logit of the action taken; the mean, for continuous actions), logit (of a fixed choice),
            log_prob (of the action taken or of a fixed choice), value (the critic's), unit (a hidden unit).
        component: of a multi-discrete or continuous action; None: all.
        choice: a fixed choice; None: the one taken.
        site: of a hidden unit.
        unit: its index at the site.
        continuous: whether the action is continuous: the output is then the network's mean, not a logit.
    """

    to: To
    component: int | None = None
    choice: int | None = None
    site: str = ""
    unit: int = 0
    continuous: bool = False

    @property
    def units(self) -> str:
        of_action = "action" if self.continuous else "logits"
        return {"value": "reward", "log_prob": "nats", "unit": "activation"}.get(self.to, of_action)

    @property
    def of_critic(self) -> bool:
        """Whether it is computed from what critics read: values, and units of a critic or a mixer."""
        return self.to == "value" or (self.to == "unit" and part_of(self.site) != "actor")

    def describe(self, spec: ActionSpec) -> str:
        """The output in words, such as `logit of move_left`."""
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
    """The output that `to` and `target` name, checked against the group's action.

    Raises:
        AnalysisError: an unknown `to`, or a target that is missing or that the action does not have.
    """
    if to not in get_args(To):
        raise AnalysisError(unknown("output to attribute", to, get_args(To)))
    if to == "unit":
        site, unit = target if isinstance(target, tuple) and len(target) == 2 else (None, None)
        if not isinstance(site, str) or not isinstance(unit, Integral):
            raise AnalysisError(f"to='unit' needs target=(site, unit), such as ('x/actor/hidden_1', 3); got {target!r}")
        return Output("unit", site=site, unit=int(unit))
    if to == "value":
        if target is not None:
            raise AnalysisError(f"to='value' takes no target; got {target!r}")
        return Output("value")
    if spec.kind == "discrete":
        if to == "logit" and target is None:
            raise AnalysisError(
                f"to='logit' needs a target, one of {_choices(spec)}; to='action' explains the action taken"
            )
        if to == "action" and target is not None:
            raise AnalysisError(
                f"to='action' explains the action taken and takes no target; use to='logit', target={target!r}"
            )
        return Output(to, None, None if target is None else _index(spec, target, spec.n[0], "choice"))  # type: ignore[arg-type]
    if spec.kind == "continuous":
        if to == "log_prob":
            if target is not None:
                raise AnalysisError(
                    f"to='log_prob' explains the continuous action taken and takes no target; got {target!r}"
                )
            return Output("log_prob")
        if target is None and spec.n_components > 1:
            raise AnalysisError(f"target must name a component, one of {_choices(spec)}")
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
        AnalysisError: there is no such site.
    """
    by_name = {site.name: site for site in sites}
    if name not in by_name:
        raise AnalysisError(unknown("site of this policy", name, by_name))
    return by_name[name]


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
    """The scalar of an output: logits `[..., parameter]`, action `[...(, component)]` -> `[...]`."""
    if spec.kind == "continuous":
        return logits[..., output.component]
    taken = action.unsqueeze(-1) if spec.kind == "discrete" else action
    terms = []
    for component, parameters in enumerate(logits.split(list(spec.n), dim=-1)):
        if spec.kind == "multi_discrete" and output.component not in (None, component):
            continue
        scores = parameters.log_softmax(-1) if output.to == "log_prob" else parameters
        if output.choice is not None:
            terms.append(scores[..., output.choice])
        else:
            terms.append(scores.gather(-1, taken[..., component : component + 1].long()).squeeze(-1))
    return torch.stack(terms).sum(0)
