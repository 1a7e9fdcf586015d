"""Outcomes of episodes played with and without edits, episode by episode: what effects are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.trajectories import Answers, Trajectories
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.models.policies.policy import Policy


class Key(NamedTuple):
    outcome: str
    who: str
    units: str


@dataclass(frozen=True)
class Pair:
    """`[episode]` each, NaN where an episode has no such number."""

    before: np.ndarray
    after: np.ndarray


Outcomes = dict[Key, Pair]


def outcomes(
    policies: Mapping[str, Policy],
    plain: Trajectories,
    changed: Trajectories,
    plain_said: Answers,
    would: Answers,
    changed_said: Answers,
) -> Outcomes:
    """All outcomes of one batch of episodes.

    Args:
        policies: those without edits, for their distributions.
        plain_said, would: what the policies say at the plain moments, without and with the edits; changed_said: with
            the edits at the moments of the changed episodes.
    """
    found = _returns(plain, changed)
    found[Key("length", "", "steps")] = Pair(plain.table.length.astype(float), changed.table.length.astype(float))
    for name, policy in policies.items():
        found |= _values(policy, plain, changed, plain_said, changed_said)
        found |= _actions(policy, name, plain, changed, would)
    return found | _labels(plain, changed)


def _returns(plain: Trajectories, changed: Trajectories) -> Outcomes:
    found: Outcomes = {}
    for group in plain.env.groups:
        before, after = plain.table.returns[group.name], changed.table.returns[group.name]
        found[Key("return", group.name, "reward")] = Pair(before.mean(1), after.mean(1))
        for index, agent in enumerate(group.agents):
            found[Key("return", agent, "reward")] = Pair(before[:, index], after[:, index])
    return found


def _values(policy: Policy, plain: Trajectories, changed: Trajectories, before: Answers, after: Answers) -> Outcomes:
    name, found = policy.group.name, {}
    first, second = before.values.get(name), after.values.get(name)
    if first is None or second is None:
        return {}
    means = [mean_over_time(value, track.acting[name]) for value, track in ((first, plain), (second, changed))]
    for index, agent in enumerate(policy.group.agents):
        found[Key("value", agent, "reward")] = Pair(means[0][:, index], means[1][:, index])
    return found


def _actions(policy: Policy, name: str, plain: Trajectories, changed: Trajectories, would: Answers) -> Outcomes:
    """Distances between actions: 0 before, by definition."""
    steps = min(len(plain.counts), len(changed.counts))
    both = plain.acting[name][:steps] & changed.acting[name][:steps]
    said = would.logits.get(name)
    measures: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}
    moved, unit = action_distance(plain.action[name][:steps], changed.action[name][:steps], policy)
    measures["changed_total", unit] = (moved, both)
    if said is not None and policy.distribution is not None:
        here, there = plain.logits[name], said
        acting = plain.acting[name]
        likely, likely_now = (policy.distribution.mode(logits).action for logits in (here, there))
        measures["changed_direct", unit] = (action_distance(likely, likely_now, policy)[0], acting)
        sides = {"direct": (here, there, acting), "total": (here[:steps], changed.logits[name][:steps], both)}
        for side, (p, q, when) in sides.items():
            for short, units, distance in (
                ("tv", "probability", total_variation(policy.distribution, p, q)),
                ("kl", "nats", kl_divergence(policy.distribution, p, q)),
            ):
                if distance is not None:
                    measures[f"{short}_{side}", units] = (distance, when)
    found = {}
    for (outcome, units), (values, when) in measures.items():
        means = mean_over_time(values, when)
        for index, agent in enumerate(policy.group.agents):
            found[Key(outcome, agent, units)] = Pair(np.zeros(len(means)), means[:, index])
    return found


def action_distance(before: Tensor, after: Tensor, policy: Policy) -> tuple[Tensor, str]:
    """How far actions differ, `[time, copy, agent]`: whether another was chosen; the mean distance of components."""
    if policy.group.action.kind == "continuous":
        return (before - after).abs().mean(-1), "action"
    differs = before != after
    return (differs.any(-1) if differs.ndim == 4 else differs).float(), "share of steps"


def _labels(plain: Trajectories, changed: Trajectories) -> Outcomes:
    """Quantities and yes-or-no labels; which of several classes holds is no number that could be averaged."""
    found: Outcomes = {}
    for label in plain.env.labels:
        if len(label.classes) > 2 or label.name not in plain.labels:
            continue
        sides = [(track.labels[label.name].float(), track.counts.cpu()) for track in (plain, changed)]
        sides = [(values.reshape(*counts.shape, -1), counts) for values, counts in sides]
        agents = plain.env.group(label.group).agents if label.group is not None else ("",)
        for index in range(sides[0][0].shape[-1]):
            which = f"{label.name}/{agents[index]}" if len(agents) > 1 else label.name
            means, ends = [], []
            for values, counts in sides:
                means.append(mean_over_time(values[..., index], counts))
                last = counts.sum(0) - 1
                ends.append(values[..., index].gather(0, last[None])[0].double().numpy())
            units = "share" if label.classes else "label's units"
            found[Key("label", which, units)] = Pair(means[0], means[1])
            found[Key("label_end", which, units)] = Pair(ends[0], ends[1])
    return found


def mean_over_time(values: Tensor, when: Tensor) -> np.ndarray:
    """Means over time, `[copy, ...]`, of `[time, copy, ...]` at the moments that count; NaN where there is none."""
    counted = torch.where(when, values.double(), 0.0).sum(0)
    number = when.sum(0)
    return torch.where(number > 0, counted / number.clamp(min=1), torch.nan).cpu().numpy()


def action_shares(track: Trajectories, group: str) -> np.ndarray | None:
    """How often each agent took each choice, `[agent, choice]` counts, of discrete actions; None for others."""
    spec = track.env.group(group).action
    if spec.kind != "discrete":
        return None
    action, when = track.action[group], track.acting[group]
    hot = torch.nn.functional.one_hot(action, spec.n[0]) * when.unsqueeze(-1)
    return hot.sum((0, 1)).double().cpu().numpy()
