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
    absent = ~batch.acting[:, list(target.members)].cpu().numpy()

    def attribute_piece(piece: RowBatch) -> list[Tensor]:
        inputs = target.inputs(piece)
        n_rows, examples = len(inputs), target.examples(piece, inputs)
        score, x, extras = examples.score, examples.inputs, examples.extras
        example_baselines = [target.baseline(baseline, n_rows) for baseline in baselines]
        if layer is not None:
            values = _conductance(target, piece, inputs, baselines, layer, config.n_steps)
        else:
            spread = None if deviations is None else target.baseline(deviations, n_rows)
            values = explain(
                score, x, example_baselines, extras, config, groups=groups, deviations=spread, generator=generator
            )
            values = values.view(n_rows, examples.n_agents, -1)[:, examples.explained]
        with torch.no_grad():
            baseline_score = torch.stack([score(baseline, *extras) for baseline in example_baselines]).mean(0)
            by_example = score(x, *extras), baseline_score
        scores = [part.view(n_rows, examples.n_agents)[:, examples.explained] for part in by_example]
        return [part.cpu() for part in (values, *scores)]

    pieces = [attribute_piece(batch.at(slice(start, start + step))) for start in range(0, len(absent), step)]
    values, scores, baseline_scores = (torch.cat(parts).numpy() for parts in zip(*pieces))
    for by_agent in (values, scores, baseline_scores):
        by_agent[absent] = np.nan
    return values, scores, baseline_scores


def _conductance(
    target: AttributionTarget, batch: RowBatch, inputs: Tensor, baselines: Tensor, layer: Site, n_steps: int
) -> Tensor:
    """`[row, member, unit]`, or all agents' units where actors read other agents' observations."""
    by_member = []
    for agent in target.members:
        examples = replace(target, members=(agent,)).examples(batch, inputs)
        x, total = examples.inputs, torch.zeros(())
        for baseline in baselines:
            expanded = baseline.expand_as(x).contiguous()
            with explain_disconnected_outputs():
                total = total + conductance(
                    MethodCall(examples.score, x, expanded, examples.extras, layer=layer.module, n_steps=n_steps)
                )
        values = total / len(baselines)
        if explained_by_all_units(target.policy, layer):
            by_member.append(values.flatten(1))
        else:
            by_member.append(values[:, 0 if values.shape[1] == 1 else layer.row_of(agent)])
    return torch.stack(by_member, dim=1)
