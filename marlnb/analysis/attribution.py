"""Attribution: which observations drove which output of which agent, over a whole recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.attribution_result import Attribution
from marlnb.analysis.methods import Method, check_method, evaluate_score, explain
from marlnb.analysis.outputs import AnyOutput, Output, OwnOutput, Target, To, resolve_output
from marlnb.analysis.rows import Moments, Rows, RowSource
from marlnb.errors import AnalysisError, ShapeError, unknown
from marlnb.models.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec

if TYPE_CHECKING:
    from marlnb.recording.reader import Recording

Baseline = Literal["mean", "zero"] | np.ndarray | Tensor | Mapping[str, Any]
Sources = Literal["own", "all"]


def attribute(
    recording: Recording,
    *,
    group: str,
    to: To = "action",
    target: Target = None,
    agent: str | None = None,
    method: Method = "integrated_gradients",
    baseline: Baseline = "mean",
    n_steps: int = 50,
    sources: Sources | None = None,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    batch_size: int = 1024,
) -> Attribution:
    """What each observed feature contributed to one output of each agent of a group, at every recorded step.

    A recurrent actor is explained step by step: the state that entered the step is the recorded one, held fixed, so
    the values say what this step's observation added to it.

    Args:
        group: whose output is explained.
        to: action (the logit of the action taken, summed over the components of a multi-discrete one; the mean of a
            continuous one), logit (of a fixed choice), log_prob (of the action taken, or of a fixed choice; nats),
            value (the critic's, in reward).
        target: the choice's or component's index or name, (component, choice) for a multi-discrete logit.
        agent: one agent of the group; None: all of them.
        baseline: what a feature is compared with. mean: the agent's mean observation over the recording's living rows;
            zero; or an array that broadcasts to `[agent, feature]` (for `sources="all"`, a mapping group -> array).
            There is no silent zero: a zero can be a real position.
        n_steps: quadrature points of integrated gradients.
        sources: own (each agent's own observation) or all (what agent k's output owes to each agent's observation);
            None: all for values and for actors whose agents hear one another (gnn), own otherwise.
        policies: by group; None: those of the checkpoint that made the recording.
        episodes: indices of the episodes to explain; None: all.
        batch_size: rows explained at once.
    Returns:
        values `[row, agent, feature]` in logits, nats or reward, with convergence_delta `[row, agent]` in the same.
    Raises:
        AnalysisError: an unknown group, agent, output, target or method; a critic that the recording cannot feed.
        ShapeError: the baseline does not broadcast.
    """
    method = check_method(method)
    source = RowSource(recording, group)
    spec = source.env.group(group)
    output = resolve_output(spec.action, to, target)
    if n_steps < 1 or batch_size < 1:
        raise AnalysisError(f"n_steps and batch_size must be at least 1; got {n_steps} and {batch_size}")
    members = _members(spec, agent)
    policy = _policy(policies if policies is not None else source.policies(), group, output)
    scope = _scope(policy, output, sources)
    rows = source.rows(episodes)
    reference = _baselines(source, rows, baseline, spec, scope, output)
    parts = [
        attribute_moments(
            policy,
            source.env,
            moments,
            output,
            members=members,
            sources=scope,
            method=method,
            baseline=reference,
            n_steps=n_steps,
        )
        for moments in source.batches(rows, batch_size, needs_state=to == "value")
    ]
    values, score, start = (np.concatenate([part[k] for part in parts]) for k in range(3))
    names, owners = _features(source.env, spec, scope, output)
    return Attribution(
        values=values,
        score=score,
        baseline_score=start,
        episode=rows.episode,
        t=rows.t,
        baseline=_stored_baseline(reference, members, scope),
        agents=tuple(spec.agents[k] for k in members),
        feature_names=names,
        feature_agents=owners,
        group=group,
        to=to,
        target=output.describe(spec.action),
        units=output.units,
        method=method,
        n_steps=n_steps if method == "integrated_gradients" else 0,
        baseline_name=baseline if isinstance(baseline, str) else "given",
        sources=scope,
        origin=source.origin(),
    )


def attribute_moments(
    policy: Policy,
    env: EnvSpec,
    moments: Moments,
    output: Output,
    *,
    members: Sequence[int],
    sources: Sources,
    method: Method,
    baseline: Tensor,
    n_steps: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attribution of one batch of rows that lie in memory.

    Args:
        members: indices of the agents explained, within the group.
        baseline: `[agent, feature]` for own sources, `[every agent's features]` for all.
    Returns:
        values `[row, member, feature]`, the scalars at the observations and at the baseline `[row, member]`; NaN where
        the agent was not acting.
    """
    n_agents, n_rows = policy.group.n_agents, moments.acting.shape[0]
    if sources == "own":
        score: OwnOutput | AnyOutput = OwnOutput(policy, output)
        inputs = moments.observations[policy.group.name].reshape(n_rows * n_agents, -1)
        baselines = baseline.expand(n_rows, *baseline.shape).reshape(inputs.shape)
        extras: tuple[Any, ...] = tuple(_stack(x) for x in (moments.action, moments.recurrent, moments.action_mask))
        chosen = torch.tensor(members, device=inputs.device)
    else:
        score = AnyOutput(policy, output, env)
        groups = env.group_names if output.to == "value" else (policy.group.name,)
        flat = torch.cat([moments.observations[name].reshape(n_rows, -1) for name in groups], dim=-1)
        inputs = flat.repeat_interleave(len(members), dim=0)
        baselines = baseline.expand_as(inputs)
        agent = torch.tensor(members, device=inputs.device).repeat(n_rows)
        held = (moments.action, moments.recurrent, moments.action_mask, moments.state)
        repeated = (None if x is None else x.repeat_interleave(len(members), dim=0) for x in held)
        extras = (agent, *repeated)
        n_agents, chosen = len(members), torch.arange(len(members), device=inputs.device)
    values = explain(score, inputs, baselines, extras, method, n_steps)
    found = (values, evaluate_score(score, inputs, extras), evaluate_score(score, baselines, extras))
    absent = ~moments.acting[:, list(members)].cpu().numpy()
    results = []
    for x in found:
        by_agent = x.view(n_rows, n_agents, *x.shape[1:])[:, chosen].cpu().numpy()
        by_agent[absent] = np.nan
        results.append(by_agent)
    return results[0], results[1], results[2]


def _stack(x: Tensor | None) -> Tensor | None:
    """`[row, agent, ...]` -> `[row * agent, ...]`."""
    return None if x is None else x.reshape(-1, *x.shape[2:])


def _scope(policy: Policy, output: Output, asked: Sources | None) -> Sources:
    """Whose observations an output is attributed to."""
    mixes = policy.mixes_agents
    if asked == "own" and output.to == "value":
        raise AnalysisError("a critic may read every agent's observation: a value is attributed to sources='all'")
    if asked == "own" and mixes:
        raise AnalysisError(
            f"the agents of {policy.group.name!r} hear one another: each output depends on every agent's observation, "
            "and is attributed to sources='all'"
        )
    return asked or ("all" if output.to == "value" or mixes else "own")


def _members(spec: GroupSpec, agent: str | None) -> list[int]:
    if agent is None:
        return list(range(spec.n_agents))
    if agent not in spec.agents:
        raise AnalysisError(unknown(f"agent of group {spec.name!r}", agent, spec.agents))
    return [spec.agents.index(agent)]


def _policy(policies: Mapping[str, Policy], group: str, output: Output) -> Policy:
    if group not in policies:
        raise AnalysisError(unknown("group with a policy", group, policies))
    policy = policies[group]
    if output.to == "value" and not policy.has_critic:
        raise AnalysisError(f"the policy of {group!r} has no critic, so no value to attribute; to='action' would work")
    if output.to == "value" and policy.critic_recurrent_shape is not None:
        raise AnalysisError(f"the critic of {group!r} is recurrent, and a recording does not hold a critic's state")
    return policy.eval()


def _baselines(
    source: RowSource, rows: Rows, baseline: Baseline, spec: GroupSpec, scope: Sources, output: Output
) -> Tensor:
    """The baseline observation: `[agent, feature]` for own sources, `[every agent's features]` for all."""
    groups = [spec] if scope == "own" or output.to != "value" else list(source.env.groups)
    found = []
    for group in groups:
        shape = (group.n_agents, group.observation.size)
        if isinstance(baseline, Mapping) and group.name not in baseline:
            raise AnalysisError(unknown("group in the baseline", group.name, baseline))
        given = baseline[group.name] if isinstance(baseline, Mapping) else baseline
        if isinstance(given, str):
            if given not in ("mean", "zero"):
                raise AnalysisError(unknown("baseline", given, ("mean", "zero")) + ", or an array")
            found.append(torch.zeros(shape) if given == "zero" else source.mean_observation(group.name, rows))
            continue
        if len(groups) > 1 and not isinstance(baseline, Mapping):
            raise ShapeError(
                f"a value reads several groups: give the baseline as a mapping of {[g.name for g in groups]}"
            )
        array = torch.as_tensor(np.asarray(given), dtype=torch.float32)
        try:
            found.append(array.broadcast_to(shape).clone())
        except RuntimeError:
            raise ShapeError(
                f"a baseline for {group.name!r} must broadcast to [agent, feature] = {list(shape)}; "
                f"got {list(array.shape)}"
            ) from None
    return found[0] if scope == "own" else torch.cat([part.reshape(-1) for part in found])


def _stored_baseline(reference: Tensor, members: Sequence[int], scope: Sources) -> np.ndarray:
    if scope == "own":
        return reference[list(members)].numpy()
    return reference.expand(len(members), -1).numpy().copy()


def feature_names(group: GroupSpec) -> tuple[str, ...]:
    """One name for each flattened feature: the environment's, or its position in the observation."""
    spec = group.observation
    if spec.names:
        return spec.names
    return tuple("observation[" + ",".join(map(str, index)) + "]" for index in np.ndindex(*spec.shape))


def _features(env: EnvSpec, spec: GroupSpec, scope: Sources, output: Output) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The feature axis: names, and the agent that observes each (empty where it is the agent explained)."""
    if scope == "own":
        return feature_names(spec), ()
    groups = env.groups if output.to == "value" else (spec,)
    pairs = [(name, agent) for group in groups for agent in group.agents for name in feature_names(group)]
    return tuple(name for name, _ in pairs), tuple(agent for _, agent in pairs)
