"""Counterfactual messages: what agents would do if another agent's message were that of another episode.

Source: Jaques et al. 2019, Social Influence as Intrinsic Motivation for Multi-Agent Deep Reinforcement Learning,
equation 2 (arXiv:1810.08647): `D(p(a | m, o) || sum_m' p(m') p(a | m', o))`, the divergence of an agent's action
distribution from its mean over counterfactual messages m'.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.communication.feature_sources import FeatureSources, messages_of
from marlnb.analysis.data.rows import RowBatch, Rows, RowSource
from marlnb.analysis.progress import AnalysisProgress
from marlnb.errors import AnalysisError
from marlnb.models.policies.distributions import Deterministic, Gaussian
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

Divergence = Literal["kl", "total_variation"]


def counterfactual_rows(rows: Rows, counts: np.ndarray, n_counterfactuals: int, seed: int, agent: str) -> np.ndarray:
    """`[counterfactual, row]`, positions of rows at the same step of other episodes, drawn uniformly.

    Args:
        counts: `[row]` bool, the rows that are drawn, and drawn for; the others get themselves.
        agent: whose rows these are, for messages.
    Raises:
        AnalysisError: they are of one episode only.
    """
    counted = np.flatnonzero(counts)
    positions = np.tile(np.arange(len(rows)), (n_counterfactuals, 1))
    if len(np.unique(rows.episode[counted])) == 1:
        raise AnalysisError(
            f"counterfactual messages come from other episodes, but {agent} takes part in one of these episodes only"
        )
    generator = np.random.default_rng(seed)
    for t in np.unique(rows.t[counted]):
        at_t = counted[rows.t[counted] == t]
        if len(at_t) == 1:  # the end of the longest episode: take any step of another one
            others = counted[rows.episode[counted] != rows.episode[at_t[0]]]
            positions[:, at_t[0]] = generator.choice(others, n_counterfactuals)
            continue
        shift = generator.integers(1, len(at_t), size=(n_counterfactuals, len(at_t)))
        positions[:, at_t] = at_t[(np.arange(len(at_t)) + shift) % len(at_t)]
    return positions


@torch.no_grad()
@torch_threads(1)
def divergence(
    policy: Policy, batch: RowBatch, observation: Tensor, counterfactuals: Tensor, measure: Divergence
) -> Tensor:
    """Divergence of the agents' action distributions from their mean under the counterfactual observations.

    Args:
        observation: `[row, agent, *shape]`.
        counterfactuals: `[counterfactual, row, agent, *shape]`.
    Returns:
        `[row, agent]`; the total variation is the mean over an action's components, the KL divergence their sum. For
        continuous actions the mean over counterfactuals of the KL divergence, since a mixture of normals has no closed
        form.
    """
    actual, _ = policy.logits(observation, recurrent=batch.recurrent)
    changed = [policy.logits(other, recurrent=batch.recurrent)[0] for other in counterfactuals]
    distribution = policy.distribution
    if isinstance(distribution, Gaussian):
        if measure != "kl":
            raise AnalysisError("the total variation of continuous actions has no closed form: use measure='kl'")
        return torch.stack([_gaussian_kl(actual, other, distribution.n_components) for other in changed]).mean(0)
    if distribution is None or isinstance(distribution, Deterministic):
        raise AnalysisError(f"the policy of {policy.group.name!r} has no distribution of actions to compare")
    components = list(zip(_probabilities(policy, actual, batch), *(_probabilities(policy, x, batch) for x in changed)))
    total = torch.zeros(actual.shape[:-1])
    for p, *changed_p in components:
        marginal = torch.stack(changed_p).double().mean(0)  # exact where all are equal
        if measure == "total_variation":
            total = total + 0.5 * (p - marginal).abs().sum(-1) / len(components)
        else:
            # where the message changes nothing the ratio is exactly 1, so that the divergence is exactly 0
            ratio = torch.where(p > 0, p / marginal.clamp(min=1e-30), 1)
            total = total + (p * ratio.log()).sum(-1)
    return total


def check_measure(policy: Policy, measure: Divergence) -> None:
    """Raises AnalysisError for a measure that is not defined for a policy's actions."""
    if policy.greedy and measure == "kl":
        raise AnalysisError(
            f"the policy of {policy.group.name!r} takes the action of the largest Q: measure='total_variation' gives "
            "how often another message would change it"
        )


def _probabilities(policy: Policy, parameters: Tensor, batch: RowBatch) -> list[Tensor]:
    """Of each action component, `[row, agent, choice]`; for Q values, 1 for the largest."""
    distribution = policy.distribution
    assert distribution is not None
    masked = distribution.mask(parameters, batch.action_mask)
    components = masked.split(list(policy.group.action.n), dim=-1)
    if policy.greedy:
        return [torch.nn.functional.one_hot(q.argmax(-1), q.shape[-1]).float() for q in components]
    return [logits.softmax(-1) for logits in components]


def _gaussian_kl(p: Tensor, q: Tensor, n: int) -> Tensor:
    """KL(p || q) of diagonal normals: `sum log(s_q / s_p) + (s_p² + (m_p - m_q)²) / (2 s_q²) - 1/2`.

    Squashing both actions does not change it. Args: p, q: mean and log_std, `[..., 2 * component]`; n: components.
    """
    (mean_p, log_std_p), (mean_q, log_std_q) = p.split(n, -1), q.split(n, -1)
    variance_ratio = (2 * (log_std_p - log_std_q)).exp()
    distance = ((mean_p - mean_q) * (-log_std_q).exp()).square()
    return (log_std_q - log_std_p + 0.5 * (variance_ratio + distance - 1)).sum(-1)


def all_observations(source: RowSource, rows: Rows, batch_rows: int = 16384) -> Tensor:
    """The group's observations at all rows, `[row, agent, *shape]`."""
    parts = [
        source.observations(source.group, Rows(rows.index[start : start + batch_rows], rows.episode, rows.t))
        for start in range(0, len(rows), batch_rows)
    ]
    observations = torch.from_numpy(np.concatenate(parts))
    return observations if observations.dtype == torch.uint8 else observations.float()


def message_effects(
    source: RowSource,
    policy: Policy,
    rows: Rows,
    feature_sources: FeatureSources | None,
    measure: Divergence,
    n_counterfactuals: int,
    batch_size: int,
    seed: int,
    progress: AnalysisProgress,
) -> np.ndarray:
    """Divergence `[row, agent, source]` of actions from those under each other agent's counterfactual messages.

    Messages that an agent observes are drawn from the rows at which it acts. Where a network reads the other agent's
    whole observation, it is drawn from the rows at which that one is alive, and at the others it stays as it is.
    """
    spec, env = policy.group, source.env
    if policy.cross_agent:
        source.check_all_recorded()
    message_features = {agent: messages_of(env, agent, feature_sources) for agent in spec.agents}
    sizes = np.zeros((len(rows), spec.n_agents, len(env.agents)))
    for k, agent in enumerate(spec.agents):
        sizes[:, k, env.agents.index(agent)] = np.nan  # an agent sends itself no messages
    observations = all_observations(source, rows)
    acting, alive = source.acting(rows), source.field("alive", rows)

    def draw(counts: np.ndarray, agent: str) -> Tensor:
        return torch.from_numpy(counterfactual_rows(rows, counts, n_counterfactuals, seed, agent))

    receives = {k: draw(acting[:, k], agent) for k, agent in enumerate(spec.agents) if message_features[agent]}
    read = {k: draw(alive[:, k], agent) for k, agent in enumerate(spec.agents) if policy.cross_agent}
    start = 0
    for batch in source.batches(rows, batch_size):
        in_batch = slice(start, start + len(batch.acting))
        observed = observations[in_batch]
        for speaker in env.agents:
            receivers = {
                k: features for k, agent in enumerate(spec.agents) if (features := message_features[agent].get(speaker))
            }
            read_by_all = policy.cross_agent and speaker in spec.agents
            if not receivers and not read_by_all:
                continue
            changed = observed.expand(n_counterfactuals, *observed.shape).clone()
            changed_features = changed.flatten(3)
            for k, features in receivers.items():
                messages = observations[receives[k][:, in_batch], k]  # [counterfactual, row, *shape]
                changed_features[:, :, k, features] = messages.flatten(2)[..., features]
            if read_by_all:
                k = spec.agents.index(speaker)
                changed_features[:, :, k] = observations[read[k][:, in_batch], k].flatten(2)
            effect = divergence(policy, batch, observed, changed_features.view(changed.shape), measure).numpy()
            for k in range(spec.n_agents) if read_by_all else receivers:
                if spec.agents[k] != speaker:
                    sizes[in_batch, k, env.agents.index(speaker)] = effect[:, k]
        sizes[in_batch][~batch.acting.numpy()] = np.nan
        start = in_batch.stop
        progress.add(len(batch.acting))
    return sizes
