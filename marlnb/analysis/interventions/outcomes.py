"""Outcomes of the same episodes played without edits (baseline) and with them (edited), episode by episode.

Effects on actions come in two kinds (Pearl 2001, Direct and Indirect Effects). A *direct* effect compares what the
two policies output on the same states, those of the baseline episodes. A *total* effect compares the two episodes at
equal steps, after the edited one has gone its own way through the environment and the other agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.trajectories import PolicyOutputs, Trajectories
from marlnb.analysis.stats.divergence import variation_and_kl
from marlnb.models.policies.policy import Policy


class OutcomeKey(NamedTuple):
    """What was measured, of whom (agent, group, label name, or empty for the episode), and its units."""

    outcome: str
    who: str
    units: str


class PairedOutcome(NamedTuple):
    """One outcome without and with edits; NaN for an episode that has no such value.

    Attributes:
        before: `[episode]`, without edits.
        after: `[episode]`, with edits.
    """

    before: np.ndarray
    after: np.ndarray


Outcomes = dict[OutcomeKey, PairedOutcome]


def paired_outcomes(
    policies: Mapping[str, Policy],
    baseline: Trajectories,
    edited: Trajectories,
    baseline_outputs: PolicyOutputs,
    edited_on_baseline: PolicyOutputs,
    edited_outputs: PolicyOutputs,
    counted: Mapping[str, Tensor] | None = None,
) -> Outcomes:
    """All outcomes of one batch of episodes.

    Args:
        policies: those without edits, for their distributions.
        baseline: the episodes without edits.
        edited: the episodes with edits.
        baseline_outputs: outputs of the unedited policies on the baseline episodes.
        edited_on_baseline: outputs of the edited policies on the baseline episodes.
        edited_outputs: outputs of the edited policies on the edited episodes.
        counted: by group, `[time, env, agent]` bool, the steps of the baseline episodes over which effects on actions
            are averaged; None: all.
    """
    outcomes = _returns(baseline, edited)
    lengths = (track.table.length.astype(float) for track in (baseline, edited))
    outcomes[OutcomeKey("length", "", "steps")] = PairedOutcome(*lengths)
    for name, policy in policies.items():
        before, after = baseline_outputs.values.get(name), edited_outputs.values.get(name)
        if before is not None and after is not None:
            means = mean_over_time(before, baseline.acting[name]), mean_over_time(after, edited.acting[name])
            for agent, *pair in zip(policy.group.agents, *(by_agent.T for by_agent in means)):
                outcomes[OutcomeKey("value", agent, "reward")] = PairedOutcome(*pair)
        acting = baseline.acting[name]
        steps = acting if counted is None else acting & counted[name]
        outcomes |= _actions(policy, baseline, edited, edited_on_baseline.logits.get(name), steps)
    return outcomes | _labels(baseline, edited)


def _returns(baseline: Trajectories, edited: Trajectories) -> Outcomes:
    outcomes: Outcomes = {}
    for group in baseline.env.groups:
        before, after = baseline.table.returns[group.name], edited.table.returns[group.name]
        outcomes[OutcomeKey("return", group.name, "reward")] = PairedOutcome(before.mean(1), after.mean(1))
        for agent, *pair in zip(group.agents, before.T, after.T):
            outcomes[OutcomeKey("return", agent, "reward")] = PairedOutcome(*pair)
    return outcomes


def _actions(
    policy: Policy, baseline: Trajectories, edited: Trajectories, logits_on_baseline: Tensor | None, counted: Tensor
) -> Outcomes:
    """Distances between actions; `before` is 0 by definition.

    Args:
        logits_on_baseline: the edited policy's, on the baseline episodes.
        counted: `[time, env, agent]` bool, steps of the baseline episodes at which the agent acts.
    """
    name = policy.group.name
    steps = min(len(baseline.in_episode), len(edited.in_episode))
    both_act = counted[:steps] & edited.acting[name][:steps]
    distance, unit = action_distance(baseline.action[name][:steps], edited.action[name][:steps], policy)
    distances: dict[tuple[str, str], tuple[Tensor, Tensor]] = {("changed_total", unit): (distance, both_act)}
    if logits_on_baseline is not None and policy.distribution is not None:
        logits = baseline.logits[name]
        mode, edited_mode = (policy.distribution.mode(values).action for values in (logits, logits_on_baseline))
        distances["changed_direct", unit] = (action_distance(mode, edited_mode, policy)[0], counted)
        compared = {
            "direct": (logits, logits_on_baseline, counted),
            "total": (logits[:steps], edited.logits[name][:steps], both_act),
        }
        for effect, (p, q, when) in compared.items():
            variation, divergence = variation_and_kl(policy.distribution, p, q)
            if variation is not None:
                distances[f"tv_{effect}", "probability"] = (variation, when)
            if divergence is not None:
                distances[f"kl_{effect}", "nats"] = (divergence, when)
    return {
        OutcomeKey(outcome, agent, units): PairedOutcome(np.zeros(len(means)), means)
        for (outcome, units), (values, when) in distances.items()
        for agent, means in zip(policy.group.agents, mean_over_time(values, when).T)
    }


def action_distance(before: Tensor, after: Tensor, policy: Policy) -> tuple[Tensor, str]:
    """How far actions differ, `[time, env, agent]`, and in which units.

    For discrete actions 1 where another action was chosen, else 0; for continuous ones the components' mean distance.
    """
    if policy.group.action.kind == "continuous":
        return (before - after).abs().mean(-1), "action"
    differs = before != after
    return (differs.any(-1) if differs.ndim == 4 else differs).float(), "share of steps"


def _labels(baseline: Trajectories, edited: Trajectories) -> Outcomes:
    """Quantities and two-class labels; the index of one of several classes is no number that could be averaged.

    A label of agents counts at the steps at which its agent is alive.
    """
    outcomes: Outcomes = {}
    for label in baseline.env.labels:
        if len(label.classes) > 2 or label.name not in baseline.labels:
            continue
        agents = baseline.env.group(label.group).agents if label.group is not None else ("",)
        means, last = [], []  # of each rollout, [episode, column]
        for track in (baseline, edited):
            when = track.in_episode.unsqueeze(-1)
            if label.group is not None:
                alive = track.alive[label.group]
                when = when.to(alive.device) & alive
            values = track.labels[label.name].float().reshape(*when.shape)
            means.append(mean_over_time(values, when.cpu()))
            last.append(mean_over_time(values, _last(when).cpu()))
        units = "share" if label.classes else "label's units"
        for column in range(means[0].shape[1]):
            name = f"{label.name}/{agents[column]}" if len(agents) > 1 else label.name
            outcomes[OutcomeKey("label", name, units)] = PairedOutcome(*(values[:, column] for values in means))
            outcomes[OutcomeKey("label_end", name, units)] = PairedOutcome(*(values[:, column] for values in last))
    return outcomes


def _last(when: Tensor) -> Tensor:
    """The last step of each column at which `when` `[time, ...]` is True, bool of its shape."""
    return when & (when.flip(0).cumsum(0).flip(0) == 1)


def mean_over_time(values: Tensor, when: Tensor) -> np.ndarray:
    """Means over time, `[env, ...]`, of values `[time, env, ...]` at the steps `when` is True; NaN if there is none."""
    total = torch.where(when, values.double(), 0.0).sum(0)
    n = when.sum(0)
    return torch.where(n > 0, total / n.clamp(min=1), torch.nan).cpu().numpy()


def action_counts(track: Trajectories, group: str) -> np.ndarray | None:
    """How often each agent took each action, `[agent, action]`; None for actions that are not discrete."""
    spec = track.env.group(group).action
    if spec.kind != "discrete":
        return None
    one_hot = torch.nn.functional.one_hot(track.action[group], spec.n[0]) * track.acting[group].unsqueeze(-1)
    return one_hot.sum((0, 1)).double().cpu().numpy()
