"""influence: who influences whom, through what agents see of one another, what they say, or what their critics read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.baselines import Baseline
from marlnb.analysis.attribution.feature_groups import feature_names
from marlnb.analysis.attribution.methods import Method
from marlnb.analysis.attribution.outputs import Target, To, resolve_output
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.setup import check_recorded
from marlnb.analysis.communication.counterfactuals import Divergence, check_measure, divergence, donors, observed
from marlnb.analysis.communication.feature_sources import Told, features_about, messages_of
from marlnb.analysis.communication.influence_result import Influence, over_episodes
from marlnb.analysis.data.rows import RowSource
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Through = Literal["observation", "communication", "critic"]


def influence(
    recording: Recording,
    through: Through = "observation",
    *,
    group: str | None = None,
    to: To = "action",
    target: Target = None,
    method: Method = "integrated_gradients",
    baseline: Baseline | None = None,
    told: Told | None = None,
    measure: Divergence = "kl",
    n_draws: int = 8,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
    n_steps: int = 50,
    batch_size: int = 1024,
    seed: int = 0,
) -> Influence:
    """How much each agent's output owes to each other agent, with intervals over episodes.

    Args:
        through: observation (the contribution, in size, of the features that tell of the other agent; where agents hear
            one another, of all that the other observes), communication (how far the agent's actions are from those
            under messages that might have been: the other's, taken from the same step of other episodes; where agents
            hear one another, its observation), critic (the contribution of the other's observation to the value).
        group: whose agents are influenced; None: of every recorded group with a policy that can be explained.
        to, target, method, baseline, n_steps: as for `attribute`; `to` and `target` only for observation, and no value.
        told: which features tell of whom, by observer and agent, `{"listener_0": {"speaker_0": ["message_*"]}}`; None:
            what the names of MPE's features tell.
        measure, n_draws: of communication: the divergence (kl in nats, total_variation from 0 to 1; for Q policies the
            latter), and from how many other episodes messages are taken.
    Raises:
        AnalysisError: an unknown `through` or group; features of which it cannot be known of whom they tell; no agent
            that could hear another; a group without a critic.
    """
    if through not in get_args(Through):
        raise AnalysisError(unknown("way of influence", through, get_args(Through)))
    _check_output(through, to, target)
    groups = _groups(recording, group)
    source = RowSource(recording, groups[0])
    known = policies if policies is not None else source.policies(checkpoint)
    env, asked = source.env, {"policies": known, "episodes": episodes, "checkpoint": checkpoint}
    agents = tuple(agent for name in groups for agent in env.group(name).agents)
    by_row, notes = [], []
    if through == "communication" and not any(
        messages_of(env, agent, told) or known[name].cross_agent for name in groups for agent in env.group(name).agents
    ):
        raise AnalysisError(
            f"no agent of {groups} hears a message, by the names of its features; told= would say which they are"
        )
    for name in groups:
        if name not in known:
            raise AnalysisError(unknown("group with a policy", name, known))
        spec = env.group(name)
        if through == "communication":
            check_measure(known[name], measure)
            rows = RowSource(recording, name).rows(episodes, checkpoint)
            by_row.append(_spoken(recording, known[name], env, rows, told, measure, n_draws, batch_size, seed))
            notes += _not_finite(by_row[-1], RowSource(recording, name).acting(rows), spec, env)
            continue
        options: dict[str, Any] = {
            "method": method,
            "baseline": baseline,
            "n_steps": n_steps,
            "batch_size": batch_size,
            "seed": seed,
        }
        options |= {"target": target} if through == "observation" else {}
        explain = _observed if through == "observation" else _judged
        sizes, found = explain(recording, spec, env, known[name], to, told, {**options, **asked})
        by_row.append(sizes)
        notes += [f"{name}: {note}" for note in found]
    rows = source.rows(episodes, checkpoint)
    values, low, high, n_episodes = over_episodes(np.concatenate(by_row, axis=1), rows.episode, seed)
    words, units = _words(through, to, target, measure, env, groups)
    return Influence(
        values, low, high, agents, env.agents, through, words, units, n_episodes, tuple(notes), source.origin()
    )


def _groups(recording: Recording, group: str | None) -> list[str]:
    if group is None:
        return list(recording.groups)
    if group not in recording.groups:
        raise AnalysisError(unknown("recorded group", group, recording.groups))
    return [group]


def _check_output(through: Through, to: To, target: Target) -> None:
    if through != "observation" and (to != "action" or target is not None):
        raise AnalysisError(f"to and target are of through='observation'; got to={to!r}, target={target!r}")
    if to == "value":
        raise AnalysisError("what a value owes to whose observation: through='critic'")


def _words(
    through: Through, to: To, target: Target, measure: Divergence, env: EnvSpec, groups: list[str]
) -> tuple[str, str]:
    if through == "communication":
        return "divergence of actions under other messages", "nats" if measure == "kl" else "total variation"
    if through == "critic":
        return "mean |contribution| to the value", "reward"
    outputs = [(resolve_output(env.group(name).action, to, target), env.group(name).action) for name in groups]
    units = " or ".join(dict.fromkeys(output.units for output, _ in outputs))
    named = to if target is None else " or ".join(dict.fromkeys(output.describe(spec) for output, spec in outputs))
    return f"mean |contribution| to the {named}", units


def _observed(
    recording: Recording, spec: GroupSpec, env: EnvSpec, policy: Policy, to: To, told: Told | None, asked: Any
) -> tuple[np.ndarray, list[str]]:
    """`[row, agent, source]`: the size of what each agent owes to what it sees of each other."""
    if policy.cross_agent:
        found = attribute(recording, group=spec.name, to=to, progress=False, sources="all", **asked)
        return _by_owner(found, env), list(found.warnings)
    names, rows, notes = feature_names(spec), [], []
    for agent in spec.agents:
        about = features_about(env, agent, told)
        rest = sorted(set(range(len(names))) - {k for places in about.values() for k in places})
        groups = {other: [names[k] for k in places] for other, places in about.items()}
        if rest:
            groups[agent] = [names[k] for k in rest]
        found = attribute(recording, group=spec.name, agent=agent, to=to, progress=False, features=groups, **asked)
        sizes = np.zeros((len(found.values), len(env.agents)))
        for place, owner in enumerate(found.feature_names):
            sizes[:, env.agents.index(owner)] = np.abs(found.values[:, 0, place])
        sizes[~np.isfinite(found.score[:, 0])] = np.nan
        rows.append(sizes)
        notes += [note for note in found.warnings if note not in notes]
    return np.stack(rows, axis=1), notes


def _judged(
    recording: Recording, spec: GroupSpec, env: EnvSpec, policy: Policy, to: To, told: Told | None, asked: Any
) -> tuple[np.ndarray, list[str]]:
    """`[row, agent, source]`: the size of what each agent's value owes to each agent's observation."""
    found = attribute(recording, group=spec.name, to="value", progress=False, **asked)
    return _by_owner(found, env), list(found.warnings)


def _by_owner(found: Attribution, env: EnvSpec) -> np.ndarray:
    sizes = np.zeros((*found.score.shape, len(env.agents)))
    for owner, values in found.by_source().items():
        sizes[..., env.agents.index(owner)] = np.abs(values.sum(-1))
    sizes[~np.isfinite(found.score)] = np.nan
    return sizes


def _not_finite(sizes: np.ndarray, acting: np.ndarray, spec: GroupSpec, env: EnvSpec) -> list[str]:
    """What is to be said of sizes `[row, agent, source]` that are no numbers though the agent acted `[row, agent]`."""
    own = np.array([[agent == source for source in env.agents] for agent in spec.agents])
    bad = (~np.isfinite(sizes) & ~own).any(-1) & acting
    if not bad.any():
        return []
    return [f"{spec.name}: not finite at {int(bad.sum())} of {int(acting.sum())} rows of an agent that acts; left out"]


def _spoken(
    recording: Recording,
    policy: Policy,
    env: EnvSpec,
    rows: Any,
    told: Told | None,
    measure: Divergence,
    n_draws: int,
    batch_size: int,
    seed: int,
) -> np.ndarray:
    """`[row, agent, source]`: how far actions are from those under what each other might have said."""
    spec, source = policy.group, RowSource(recording, policy.group.name)
    if policy.cross_agent:
        check_recorded(source, policy)
    channels = {agent: messages_of(env, agent, told) for agent in spec.agents}
    sizes = np.zeros((len(rows), spec.n_agents, len(env.agents)))
    for k in range(spec.n_agents):
        sizes[:, k, env.agents.index(spec.agents[k])] = np.nan  # nobody is told anything by itself
    everything, drawn, start = observed(source, rows), donors(rows, n_draws, seed), 0
    for moments in source.batches(rows, batch_size):
        here = slice(start, start + len(moments.acting))
        seen = everything[here]
        others = everything[torch.from_numpy(drawn[:, here])]  # [draw, row, agent, *shape]
        for speaker in env.agents:
            heard = {k: places for k, a in enumerate(spec.agents) if (places := channels[a].get(speaker))}
            hears_all = policy.cross_agent and speaker in spec.agents
            if not heard and not hears_all:
                continue
            changed = seen.expand(n_draws, *seen.shape).clone()
            flat, donor = changed.flatten(3), others.flatten(3)
            for k, places in heard.items():
                flat[:, :, k, places] = donor[:, :, k, places]
            if hears_all:
                flat[:, :, spec.agents.index(speaker)] = donor[:, :, spec.agents.index(speaker)]
            told_of = divergence(policy, moments, seen, flat.view(changed.shape), measure).numpy()
            listeners = range(spec.n_agents) if hears_all else heard
            for k in listeners:
                if spec.agents[k] != speaker:
                    sizes[here, k, env.agents.index(speaker)] = told_of[:, k]
        sizes[here][~moments.acting.numpy()] = np.nan
        start = here.stop
    return sizes
