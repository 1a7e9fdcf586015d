"""What agents would do if another agent's message were that of another episode, at every row of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.communication.counterfactuals import Counterfactuals, counterfactuals_of
from marlnb.analysis.communication.divergence import Divergence, divergence
from marlnb.analysis.communication.feature_sources import FeatureSources, messages_of
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.progress import AnalysisProgress
from marlnb.models.policies.policy import Policy


@dataclass(frozen=True)
class Exchange:
    """One part of a message in the observations, and what it is exchanged for.

    Attributes:
        agent_index: whose observation it is in.
        features: indices into that observation.
        affected: indices of the agents whose actions are compared.
        counterfactuals: rows with other messages.
    """

    agent_index: int
    features: list[int] | slice
    affected: list[int]
    counterfactuals: Counterfactuals


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
) -> tuple[np.ndarray, np.ndarray]:
    """Divergence of actions from those under each other agent's counterfactual messages.

    Messages that an agent observes are exchanged between rows at which it acts. Where a network reads the other agent's
    whole observation, it is exchanged between rows at which that one is alive, and at the others it stays as it is.

    Returns:
        The divergence `[row, agent, source]`, and how the message of each row changes the divergences of the rows that
        are given it, to first order and summed, `[row, agent, source]`.
    """
    spec, env = policy.group, source.env
    source.check_recorded(policy.reads(critic=False))
    sizes = np.zeros((len(rows), spec.n_agents, len(env.agents)))
    changes = np.zeros_like(sizes)
    observations = all_observations(source, rows)
    exchanges = _exchanges(source, policy, rows, observations, feature_sources, n_counterfactuals, seed)
    start = 0
    for batch in source.batches(rows, batch_size):
        in_batch = slice(start, start + len(batch.acting))
        for speaker, parts in exchanges.items():
            s, affected = env.agents.index(speaker), sorted({k for part in parts for k in part.affected})
            changed, weights = _exchanged(observations, in_batch, parts), _weights(parts, in_batch, spec.n_agents)
            size, change = divergence(policy, batch, observations[in_batch], changed, weights, measure)
            sizes[in_batch, affected, s] = size[:, affected].numpy()
            change = torch.where(batch.acting & size.isfinite(), change, 0)
            for part in parts:
                positions = part.counterfactuals.positions[:, in_batch]
                for k in part.affected:
                    np.add.at(changes[:, k, s], positions, change[: len(positions), :, k].numpy())
        sizes[in_batch][~batch.acting.numpy()] = np.nan
        start = in_batch.stop
        progress.add(len(batch.acting))
    for speaker, parts in exchanges.items():
        for part in parts:
            cells = np.s_[:, part.affected, env.agents.index(speaker)]
            changes[cells] = _shared(changes[cells], part.counterfactuals.same)
    for k, agent in enumerate(spec.agents):
        sizes[:, k, env.agents.index(agent)] = np.nan  # an agent sends itself no messages
    return sizes, changes


def _exchanges(
    source: RowSource,
    policy: Policy,
    rows: Rows,
    observations: Tensor,
    feature_sources: FeatureSources | None,
    n_counterfactuals: int,
    seed: int,
) -> dict[str, list[Exchange]]:
    """By speaker, the parts of its message; for a network that reads all agents, also its whole observation."""
    spec, env, cross_agent = policy.group, source.env, policy.cross_agent
    acting, alive = source.acting(rows), source.field("alive", rows)
    exchanges: dict[str, list[Exchange]] = {agent: [] for agent in env.agents}
    for k, agent in enumerate(spec.agents):
        for speaker, features in messages_of(env, agent, feature_sources).items():
            messages = observations[:, k].flatten(1)[:, features].numpy()
            counts = acting[:, k] & np.isfinite(messages).all(-1)
            # what one network reads together comes from one other episode: drawn, since lists differ between agents
            listed = None if cross_agent else messages
            others = counterfactuals_of(rows, counts, listed, n_counterfactuals, seed, agent)
            affected = [] if cross_agent and speaker in spec.agents else [k]
            exchanges[speaker].append(Exchange(k, features, affected, others))
    for k, agent in enumerate(spec.agents if cross_agent else ()):
        others = counterfactuals_of(rows, alive[:, k], None, n_counterfactuals, seed, agent)
        readers = [reader for reader in range(spec.n_agents) if reader != k]
        exchanges[agent].append(Exchange(k, slice(None), readers, others))
    return {speaker: parts for speaker, parts in exchanges.items() if parts}


def _exchanged(observations: Tensor, in_batch: slice, exchanges: list[Exchange]) -> Iterator[Tensor]:
    """The batch's observations `[row, agent, *shape]` under each counterfactual."""
    for number in range(max(len(exchange.counterfactuals.positions) for exchange in exchanges)):
        changed = observations[in_batch].clone()
        for exchange in exchanges:
            if number < len(exchange.counterfactuals.positions):
                positions = torch.from_numpy(exchange.counterfactuals.positions[number, in_batch]).long()
                given = observations[positions, exchange.agent_index].flatten(1)[:, exchange.features]
                changed.flatten(2)[:, exchange.agent_index, exchange.features] = given
        yield changed


def _weights(exchanges: list[Exchange], in_batch: slice, n_agents: int) -> Tensor:
    """How often each counterfactual is counted, `[counterfactual, row, agent]`; 0 for agents that are not compared."""
    n_counterfactuals = max(len(exchange.counterfactuals.weights) for exchange in exchanges)
    weights = torch.zeros(n_counterfactuals, in_batch.stop - in_batch.start, n_agents)
    for exchange in exchanges:
        weight = torch.from_numpy(exchange.counterfactuals.weights[:, in_batch]).float()
        weights[: len(weight), :, exchange.affected] = weight.unsqueeze(-1)
    return weights


def _shared(changes: np.ndarray, same: np.ndarray) -> np.ndarray:
    """The mean of changes `[row, agent]` over the rows that share a message `[row]`."""
    number = np.unique(same, return_inverse=True)[1].reshape(-1)
    sums = np.zeros((number.max() + 1, changes.shape[1]))
    np.add.at(sums, number, changes)
    return sums[number] / np.bincount(number)[number, None]


def all_observations(source: RowSource, rows: Rows, batch_rows: int = 16384) -> Tensor:
    """The group's observations at all rows, `[row, agent, *shape]`."""
    parts = [
        source.observations(source.group, Rows(rows.index[start : start + batch_rows], rows.episode, rows.t))
        for start in range(0, len(rows), batch_rows)
    ]
    observations = torch.from_numpy(np.concatenate(parts))
    return observations if observations.dtype == torch.uint8 else observations.float()
