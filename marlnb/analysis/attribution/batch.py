"""Attribution of one batch of rows that lie in memory, in pieces that fit a processor's cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.attribution.methods import MethodOptions, conductance, evaluate_score, explain, rows_at_once
from marlnb.analysis.attribution.target import Question, units_of_all
from marlnb.analysis.data.rows import Moments
from marlnb.models.hooks.sites import Site
from marlnb.training.collect.threads import torch_threads

Found = tuple[np.ndarray, np.ndarray, np.ndarray]


@torch_threads(1)  # pieces fit a cache: more threads wait for each other
def attribute_batch(
    question: Question,
    moments: Moments,
    reference: Tensor,
    options: MethodOptions,
    *,
    groups: Tensor | None = None,
    deviations: Tensor | None = None,
    layer: Site | None = None,
    generator: torch.Generator | None = None,
) -> Found:
    """Attribution of one batch of rows.

    Args:
        reference: `[baseline, agent, feature]` for own sources, `[baseline, feature]` for all.
        groups: `[feature]`, the number of each feature's group; deviations: as the reference, without its first axis.
        layer: of conductance, whose units are explained; the question is then by every agent's observation.
    Returns:
        values `[row, member, feature or group]`, the scalars at the rows and the mean of those at the baselines
        `[row, member]`; NaN where the agent was not acting.
    """
    n_rows, n_features = moments.acting.shape[0], reference.shape[-1]
    examples_a_row = question.policy.group.n_agents if question.stacked else len(question.members)
    step = rows_at_once(options, n_features, examples_a_row)
    found = [
        _piece(question, piece, reference, options, groups, deviations, layer, generator)
        for piece in _pieces(moments, n_rows, step)
    ]
    absent = ~moments.acting[:, list(question.members)].cpu().numpy()
    results = []
    for parts in zip(*found):
        by_agent = np.concatenate(parts)
        by_agent[absent] = np.nan
        results.append(by_agent)
    return results[0], results[1], results[2]


def _piece(
    question: Question,
    moments: Moments,
    reference: Tensor,
    options: MethodOptions,
    groups: Tensor | None,
    deviations: Tensor | None,
    layer: Site | None,
    generator: torch.Generator | None,
) -> Found:
    inputs = question.inputs(moments)
    n_rows = len(inputs)
    examples = question.examples(moments, inputs)
    baselines = [question.reference(one, n_rows) for one in reference]
    if layer is not None:
        values = _conductance(question, moments, inputs, reference, layer, options)
    else:
        spread = None if deviations is None else question.reference(deviations, n_rows)
        values = explain(
            examples.score,
            examples.inputs,
            baselines,
            examples.extras,
            options,
            groups=groups,
            deviations=spread,
            generator=generator,
        )
        values = values.view(n_rows, examples.agents, -1)[:, examples.chosen]
    score = evaluate_score(examples.score, examples.inputs, examples.extras)
    starts = [evaluate_score(examples.score, baseline, examples.extras) for baseline in baselines]
    start = torch.stack(starts).mean(0)
    by_agent = [x.view(n_rows, examples.agents)[:, examples.chosen].cpu().numpy() for x in (score, start)]
    return values.cpu().numpy(), by_agent[0], by_agent[1]


def _conductance(
    question: Question, moments: Moments, inputs: Tensor, reference: Tensor, layer: Site, options: MethodOptions
) -> Tensor:
    """`[row, member, unit]`, or every row's units where the agents hear one another."""
    found = []
    for agent in question.members:
        examples = replace(question, members=(agent,)).examples(moments, inputs)
        total = sum(
            conductance(
                examples.score,
                layer.module,
                examples.inputs,
                one.expand_as(examples.inputs).contiguous(),
                examples.extras,
                options.n_steps,
            )
            for one in reference
        )
        assert isinstance(total, Tensor)
        if units_of_all(question.policy, layer):
            found.append((total / len(reference)).flatten(1))
        else:
            row = 0 if total.shape[1] == 1 else layer.row_of(agent)
            found.append(total[:, row] / len(reference))
    return torch.stack(found, dim=1)


def _pieces(moments: Moments, n_rows: int, step: int) -> Iterator[Moments]:
    for start in range(0, n_rows, step):
        yield rows_of(moments, slice(start, start + step))


def rows_of(moments: Moments, rows: slice | Tensor) -> Moments:
    """Some of a batch's rows."""

    def some(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[rows]

    return Moments(
        observations={name: observation[rows] for name, observation in moments.observations.items()},
        action=moments.action[rows],
        acting=moments.acting[rows],
        recurrent=some(moments.recurrent),
        action_mask=some(moments.action_mask),
        state=some(moments.state),
        critic_recurrent=some(moments.critic_recurrent),
    )
