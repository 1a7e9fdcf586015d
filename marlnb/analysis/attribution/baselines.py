"""Baselines: what an output is compared with. Zero is never assumed, since zero can be a real observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.attribution.config import AttributionConfig, Baseline
from marlnb.analysis.attribution.target import AttributionTarget
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.strata import Strata
from marlnb.errors import AnalysisError, ShapeError, unknown
from marlnb.specs import GroupSpec

BATCH_ROWS = 8192


@dataclass(frozen=True)
class ResolvedBaseline:
    """Baselines as tensors.

    Attributes:
        values: `[baseline, agent, feature]` for own sources, `[baseline, feature]` for others.
        name: in words.
    """

    values: Tensor
    name: str


def resolve_baseline(
    target: AttributionTarget, source: RowSource, rows: Rows, config: AttributionConfig
) -> ResolvedBaseline:
    """The baseline that a config describes.

    Args:
        rows: all rows of the recording, whichever of them are explained.
    Raises:
        AnalysisError: an episode, step or group that does not exist.
        ShapeError: an array that does not broadcast.
    """
    baseline: Baseline = config.baseline if config.baseline is not None else "mean"
    if config.settings.baseline == "distribution":
        baseline = "distribution"
    if isinstance(baseline, tuple):
        return _at_row(target, source, baseline)
    if not isinstance(baseline, str):
        return ResolvedBaseline(_from_array(target, source, baseline).unsqueeze(0), "given")
    if baseline == "zero":
        return ResolvedBaseline(torch.zeros_like(_inputs(target, source, rows.at(slice(1)))), "zero")
    if baseline == "distribution":
        name = f"distribution: {config.n_baselines} rows of the recording, seed {config.seed}"
        return ResolvedBaseline(_draw_rows(target, source, rows, config.n_baselines, config.seed), name)
    name = "start: each agent's mean at its first row of each episode" if baseline == "start" else "mean"
    return ResolvedBaseline(_mean(target, source, rows, at_start=baseline == "start").unsqueeze(0), name)


def baselines_by_class(
    target: AttributionTarget, source: RowSource, rows: Rows, config: AttributionConfig, strata: Strata
) -> list[ResolvedBaseline]:
    """By class of what is given, the baseline from the rows of each agent that are in this class.

    Args:
        rows: all rows of the recording.
        strata: of these rows.
    Raises:
        AnalysisError: other agents' observations, or a state, explain the output, so that a row has no single class.
    """
    if target.sources != "own":
        raise AnalysisError(
            f"given= needs outputs that each agent's own observation explains; here sources={target.sources!r}"
        )
    baselines = []
    for k, name in enumerate(strata.names):
        parts = []
        for agent in range(strata.index.shape[1]):
            in_class = strata.index[:, agent] == k
            of_agent = rows.at(in_class) if in_class.any() else rows  # an agent that is never in the class needs none
            parts.append(resolve_baseline(target, source, of_agent, config).values[:, agent])
        baselines.append(ResolvedBaseline(torch.stack(parts, dim=1), name))
    return baselines


def deviations(target: AttributionTarget, source: RowSource, rows: Rows) -> Tensor:
    """Each feature's standard deviation: `[agent, feature]`, or `[feature]` for other sources.

    As in `_mean`, over rows of living agents; of a site's units, over rows at which the agent acted.
    """
    sample = rows.at(np.unique(np.linspace(0, len(rows) - 1, min(len(rows), BATCH_ROWS)).astype(np.int64)))
    inputs, exists = _inputs(target, source, sample).double(), _exists(target, source, sample)
    count = exists.sum(0).clamp(min=1)
    mean = torch.where(exists, inputs, 0).sum(0) / count
    return (torch.where(exists, inputs - mean, 0).square().sum(0) / count).sqrt().float()


def _exists(target: AttributionTarget, source: RowSource, rows: Rows) -> Tensor:
    """Bool that broadcasts to the rows' inputs: where these are a living agent's, and no zeros in place of them."""
    if target.site is not None and target.sources == "own":
        return torch.from_numpy(source.acting(rows)).unsqueeze(-1)
    if target.site is not None or target.sources == "state":
        return torch.ones(len(rows), 1, dtype=torch.bool)
    alive = {name: torch.from_numpy(source.alive(name, rows)) for name in target.groups}
    if target.sources == "own":
        return alive[source.group].unsqueeze(-1)
    sizes = {name: source.env.group(name).observation.size for name in target.groups}
    return torch.cat([alive[name].repeat_interleave(sizes[name], dim=1) for name in target.groups], dim=1)


def _at_row(target: AttributionTarget, source: RowSource, named: tuple[Any, ...]) -> ResolvedBaseline:
    if named[0] != "episode" or named[2] != "t":
        raise AnalysisError(f"a row as baseline is ('episode', number, 't', step); got {named!r}")
    all_rows = source.rows(None)
    position = np.flatnonzero((all_rows.episode == named[1]) & (all_rows.t == named[3]))
    if not len(position):
        steps = all_rows.t[all_rows.episode == named[1]]
        valid = f"t from {steps.min()} to {steps.max()}" if len(steps) else f"no episode {named[1]}"
        raise AnalysisError(f"no row at episode {named[1]}, t {named[3]}; there is {valid}")
    row = all_rows.at(position)
    absent = ~source.acting(row)[0, list(target.members)]
    if absent.any():
        names = [target.policy.group.agents[k] for k, is_absent in zip(target.members, absent) if is_absent]
        raise AnalysisError(f"{names} did not act at episode {named[1]}, t {named[3]}, so they have no baseline there")
    return ResolvedBaseline(_inputs(target, source, row), f"episode {named[1]}, t {named[3]}")


def _from_array(target: AttributionTarget, source: RowSource, baseline: Any) -> Tensor:
    group = target.policy.group

    def of_group(spec: GroupSpec, array: Any) -> Tensor:
        return broadcast_baseline(array, (spec.n_agents, spec.observation.size), f"{spec.name!r}", "[agent, feature]")

    if target.site is not None:
        shape = tuple(_inputs(target, source, source.rows(None).at(slice(1))).shape[1:])
        return broadcast_baseline(baseline, shape, f"{target.site.name!r}", "[agent, unit]")
    if target.sources == "state":
        size = int(torch.Size(source.env.state_shape or ()).numel())
        return broadcast_baseline(baseline, (size,), "the environment's state", "[feature]")
    if target.groups == (group.name,):
        by_agent = of_group(group, baseline[group.name] if isinstance(baseline, Mapping) else baseline)
        return by_agent if target.sources == "own" else by_agent.reshape(-1)
    if not isinstance(baseline, Mapping):
        raise ShapeError(f"a value reads several groups: give the baseline as a mapping of {list(target.groups)}")
    for name in target.groups:
        if name not in baseline:
            raise AnalysisError(unknown("group in the baseline", name, baseline))
    return torch.cat([of_group(spec, baseline[spec.name]).reshape(-1) for spec in source.env.groups])


def broadcast_baseline(values: Any, shape: tuple[int, ...], what: str, axes: str) -> Tensor:
    """A user's array as a float tensor of this shape.

    Raises:
        ShapeError: it does not broadcast.
    """
    array = torch.as_tensor(np.asarray(values), dtype=torch.float32)
    try:
        return array.broadcast_to(shape).clone()
    except RuntimeError:
        raise ShapeError(
            f"a baseline for {what} must broadcast to {axes} = {list(shape)}; got {list(array.shape)}"
        ) from None


def _mean(target: AttributionTarget, source: RowSource, rows: Rows, *, at_start: bool) -> Tensor:
    """The mean over rows of living agents; of a site's units, over rows at which the agent acted.

    Args:
        at_start: only over the first of these rows in each episode.
    """
    if target.site is None and target.sources != "state":
        parts = [
            source.mean_observation(name, rows, rows.first_of_episodes(source.alive(name, rows)) if at_start else None)
            for name in target.groups
        ]
        return parts[0] if target.sources == "own" else torch.cat([part.reshape(-1) for part in parts])
    exists = _exists(target, source, rows).numpy()
    counts = rows.first_of_episodes(exists) if at_start else exists
    needed = np.flatnonzero(counts.reshape(len(rows), -1).any(axis=1))
    rows, counts = rows.at(needed), counts[needed]
    total, first = torch.zeros(()), 0
    for batch in source.batches(rows, BATCH_ROWS, needs_state=target.output.of_critic):
        inputs = target.inputs(batch)
        of_batch = torch.from_numpy(counts[first : first + len(inputs)])
        total, first = total + torch.where(of_batch, inputs, 0).double().sum(0), first + len(inputs)
    return (total / torch.from_numpy(counts.sum(axis=0)).clamp(min=1)).float()


def _draw_rows(target: AttributionTarget, source: RowSource, rows: Rows, n: int, seed: int) -> Tensor:
    """Uniformly drawn rows: for own sources each agent's from those at which it acted, else the same for all agents."""
    generator = np.random.default_rng(seed)
    acting = source.acting(rows)

    def draw(candidates: np.ndarray) -> Rows:
        return rows.at(np.sort(generator.choice(candidates, n, replace=len(candidates) < n)))

    if target.sources != "own":
        everyone_acts = np.flatnonzero(acting.all(1))
        return _inputs(target, source, draw(everyone_acts if len(everyone_acts) else np.flatnonzero(acting.any(1))))
    parts = []
    for agent in range(acting.shape[1]):
        agent_acts = np.flatnonzero(acting[:, agent])
        sample = draw(agent_acts if len(agent_acts) else np.arange(len(rows)))
        parts.append(_inputs(target, source, sample)[:, agent])
    return torch.stack(parts, dim=1)


def _inputs(target: AttributionTarget, source: RowSource, rows: Rows) -> Tensor:
    batches = source.batches(rows, BATCH_ROWS, needs_state=target.output.of_critic)
    return torch.cat([target.inputs(batch) for batch in batches])
