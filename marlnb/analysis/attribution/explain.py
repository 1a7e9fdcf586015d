"""One attribution method on a batch of flat examples: averaged over baselines and noisy copies, added by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.forward import explain_disconnected_outputs
from marlnb.analysis.attribution.methods import MAX_EXAMPLES, MethodCall


def explain(
    score: nn.Module,
    inputs: Tensor,
    baselines: Sequence[Tensor],
    extras: tuple[Any, ...],
    config: AttributionConfig,
    *,
    groups: Tensor | None = None,
    deviations: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """What each feature, or group of features, of each example contributes to its score, `[example, feature]`.

    With `config.smooth` = m copies, values are SmoothGrad's mean over x + noise deviation e with e ~ N(0, 1)
    (Smilkov et al. 2017, arXiv:1706.03825).

    Args:
        score: `(inputs, *extras) -> [example]`; each example's score depends on that example alone (or, for agents
            stacked on the example axis, on that agent alone).
        inputs: `[example, feature]`.
        baselines: each `[example, feature]`; the values are averaged over them.
        groups: `[feature]`, the number of each feature's group, counted from 0. Perturbations change a group together;
            the values of other methods are added.
        deviations: `[example or 1, feature]`, of which `config.noise` is a share.
    """
    method = config.settings
    used_baselines = list(baselines[:1] if method.baseline == "none" else baselines)
    n_features = inputs.shape[-1] if groups is None else int(groups.max()) + 1
    n_samples = config.n_samples or method.default_n_samples(n_features)

    def averaged_over_baselines(x: Tensor) -> Tensor:
        total = torch.zeros(())
        for baseline in used_baselines:
            call = MethodCall(score, x, baseline, extras, groups, None, config.n_steps, n_samples, generator)
            with explain_disconnected_outputs():
                values = method.compute(call).detach()
            if groups is not None and values.shape[-1] == len(groups) and not method.perturbs_groups:
                values = sum_by_group(values, groups)
            total = total + values
        return total / len(used_baselines)

    if not config.smooth:
        return averaged_over_baselines(inputs)
    spread = config.noise * (torch.ones_like(inputs[:1]) if deviations is None else deviations)
    noises = (torch.randn(inputs.shape, generator=generator).to(inputs.device) for _ in range(config.smooth))
    return sum((averaged_over_baselines(inputs + spread * noise) for noise in noises), torch.zeros(())) / config.smooth


def sum_by_group(values: Tensor, groups: Tensor) -> Tensor:
    """Values `[..., feature]` added by group, `[..., group]`."""
    sums = values.new_zeros(*values.shape[:-1], int(groups.max()) + 1)
    return sums.index_add(-1, groups.to(values.device), values)


def max_rows(config: AttributionConfig, n_features: int, examples_per_row: int) -> int:
    """Rows whose examples fit in memory together, and about in a processor's cache."""
    evaluations = config.settings.n_evaluations(config.n_steps, n_features)
    return max(1, MAX_EXAMPLES // (evaluations * examples_per_row))
