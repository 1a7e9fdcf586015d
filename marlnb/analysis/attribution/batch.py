"""Attribution of one batch of rows in memory, in pieces that fit a processor's cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.explain import explain, max_rows
from marlnb.analysis.attribution.forward import explain_disconnected_outputs
from marlnb.analysis.attribution.methods import MethodCall, conductance
from marlnb.analysis.attribution.target import AttributionTarget, explained_by_all_units
from marlnb.analysis.data.rows import RowBatch
from marlnb.models.hooks.sites import Site
from marlnb.training.collect.threads import torch_threads

BatchResult = tuple[np.ndarray, np.ndarray, np.ndarray]  # values, scores and baseline scores


@torch_threads(1)  # pieces fit a cache: more threads would wait for each other
def attribute_batch(
    target: AttributionTarget,
    batch: RowBatch,
    baselines: Tensor,
    config: AttributionConfig,
    *,
    groups: Tensor | None = None,
    deviations: Tensor | None = None,
    layer: Site | None = None,
    generator: torch.Generator | None = None,
) -> BatchResult:
    """Attribution of one batch of rows.

    Args:
        baselines: `[baseline, agent, feature]` for own sources, `[baseline, feature]` for others.
        groups: `[feature]`, the number of each feature's group.
        deviations: as one baseline.
        layer: of conductance, whose units are explained; the target is then explained by every agent's observation.
    Returns:
        values `[row, member, feature or group]`, scores at the rows and mean scores at the baselines `[row, member]`;
        NaN where the agent was not acting.
    """
    examples_per_row = target.policy.group.n_agents if target.stacked else len(target.members)
    step = max_rows(config, baselines.shape[-1], examples_per_row)
    pieces = [
        _attribute_piece(
            target, batch.at(slice(start, start + step)), baselines, config, groups, deviations, layer, generator
        )
        for start in range(0, batch.acting.shape[0], step)
    ]
    absent = ~batch.acting[:, list(target.members)].cpu().numpy()
    arrays = [np.concatenate(parts) for parts in zip(*pieces)]
    for by_agent in arrays:
        by_agent[absent] = np.nan
    return arrays[0], arrays[1], arrays[2]


def _attribute_piece(
    target: AttributionTarget,
    batch: RowBatch,
    baselines: Tensor,
    config: AttributionConfig,
    groups: Tensor | None,
    deviations: Tensor | None,
    layer: Site | None,
    generator: torch.Generator | None,
) -> BatchResult:
    inputs = target.inputs(batch)
    n_rows = len(inputs)
    examples = target.examples(batch, inputs)
    example_baselines = [target.baseline(baseline, n_rows) for baseline in baselines]
    if layer is not None:
        values = _conductance(target, batch, inputs, baselines, layer, config)
    else:
        values = explain(
            examples.score,
            examples.inputs,
            example_baselines,
            examples.extras,
            config,
            groups=groups,
            deviations=None if deviations is None else target.baseline(deviations, n_rows),
            generator=generator,
        )
        values = values.view(n_rows, examples.n_agents, -1)[:, examples.explained]
    with torch.no_grad():
        score = examples.score(examples.inputs, *examples.extras)
        baseline_score = torch.stack([examples.score(x, *examples.extras) for x in example_baselines]).mean(0)
    by_agent = [x.view(n_rows, examples.n_agents)[:, examples.explained].cpu().numpy() for x in (score, baseline_score)]
    return values.cpu().numpy(), by_agent[0], by_agent[1]


def _conductance(
    target: AttributionTarget,
    batch: RowBatch,
    inputs: Tensor,
    baselines: Tensor,
    layer: Site,
    config: AttributionConfig,
) -> Tensor:
    """`[row, member, unit]`, or all agents' units where actors read other agents' observations."""
    by_member = []
    for agent in target.members:
        examples = replace(target, members=(agent,)).examples(batch, inputs)
        total = torch.zeros(())
        for baseline in baselines:
            expanded = baseline.expand_as(examples.inputs).contiguous()
            call = MethodCall(
                examples.score, examples.inputs, expanded, examples.extras, layer=layer.module, n_steps=config.n_steps
            )
            with explain_disconnected_outputs():
                total = total + conductance(call)
        values = total / len(baselines)
        if explained_by_all_units(target.policy, layer):
            by_member.append(values.flatten(1))
        else:
            row = 0 if values.shape[1] == 1 else layer.row_of(agent)
            by_member.append(values[:, row])
    return torch.stack(by_member, dim=1)
