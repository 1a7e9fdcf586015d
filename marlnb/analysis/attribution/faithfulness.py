"""How well attribution values predict the output: infidelity and sensitivity, over a seeded sample of rows.

Source: Yeh et al. 2019, sections 2 and 3 (arXiv:1901.09392). captum.metrics has both, but it repeats single examples,
which would separate the agents of a row. The tests compare these with captum's for one agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.explain import explain
from marlnb.analysis.attribution.target import Examples

N_ROWS, N_SUBSETS, N_SHIFTS = 64, 16, 3
RADIUS = 0.02  # of the shifts, as a share of each feature's standard deviation
MAX_INFIDELITY, MAX_SENSITIVITY = 0.5, 1.0


@dataclass(frozen=True)
class Faithfulness:
    """Both numbers are shares, and 0 is best.

    Attributes:
        infidelity: how far the values of random sets of features (half of them at the baseline together) are from the
            change that they cause: the squared error, as a share of the squared change; 1 for values of 0.
        sensitivity: how far the values move at most, as a share of their length, when each feature moves by up to 2% of
            its standard deviation; the mean over rows.
        n_rows: rows sampled.
        n_subsets: sets of features at each row.
    """

    infidelity: float
    sensitivity: float
    n_rows: int
    n_subsets: int = N_SUBSETS

    def describe(self) -> str:
        return (
            f"infidelity {self.infidelity:.2f} (values of 0 have 1), sensitivity {self.sensitivity:.2f} on "
            f"{self.n_rows} steps"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        messages = []
        if not (isfinite(self.infidelity) and isfinite(self.sensitivity)):
            messages.append(
                "infidelity and sensitivity could not be measured: the rows hold values that are not finite"
            )
        if self.infidelity > MAX_INFIDELITY:
            messages.append(
                f"infidelity {self.infidelity:.2f}: values miss most of what features do together "
                f"(tolerated: {MAX_INFIDELITY}); another method or baseline may explain more"
            )
        if self.sensitivity > MAX_SENSITIVITY:
            messages.append(
                f"sensitivity {self.sensitivity:.2f}: values change by more than their size when observations move by "
                "2% of their deviation; smooth=20 would average over that"
            )
        return tuple(messages)


@torch.no_grad()
def measure_faithfulness(
    examples: Examples,
    baselines: Sequence[Tensor],
    config: AttributionConfig,
    *,
    acting: Tensor,
    groups: Tensor | None,
    deviations: Tensor,
) -> Faithfulness:
    """Measures a method on a few examples.

    With random subsets S of the features, x_S the example with S at the baseline, and shifts e with |e_i| <= 0.02 s_i:

        infidelity  = sum_S (sum_{i in S} phi_i - (f(x) - f(x_S)))^2 / sum_S (f(x) - f(x_S))^2
        sensitivity = max_e |phi(x + e) - phi(x)| / |phi(x)|

    For methods without a baseline phi_i is the gradient times the change of feature i.

    Args:
        baselines: as for `explain`.
        acting: `[example]` bool, which examples count.
        groups: as for `explain`.
        deviations: `[example or 1, feature]`, each feature's standard deviation over the recording.
    """
    generator = torch.Generator().manual_seed(config.seed)
    uses_gradient = config.settings.baseline == "none"
    if uses_gradient:
        config, groups = replace(config, method="gradient", smooth=0), None
    x, score, extras = examples.inputs, examples.score, examples.extras

    def values_at(inputs: Tensor) -> Tensor:
        same_draws = torch.Generator().manual_seed(config.seed)
        with torch.enable_grad():
            return explain(
                score, inputs, baselines, extras, config, groups=groups, deviations=deviations, generator=same_draws
            )

    values = values_at(x)
    group_of = torch.arange(x.shape[1]) if groups is None else groups.cpu()
    squared_error, squared_change = torch.zeros(len(x)), torch.zeros(len(x))
    score_at_x = score(x, *extras)
    for _ in range(N_SUBSETS):
        removed = torch.rand(len(x), int(group_of.max()) + 1, generator=generator) < 0.5
        baseline = baselines[int(torch.randint(len(baselines), (), generator=generator))]
        without = torch.where(removed[:, group_of].to(x.device), baseline, x)
        change = score_at_x - score(without, *extras)
        predicted = (values * (x - without if uses_gradient else removed.to(x))).sum(-1)
        squared_error += (predicted - change).square().cpu()
        squared_change += change.square().cpu()
    largest_move = torch.zeros(len(x))
    length = values.norm(dim=-1).clamp(min=1e-12)
    for _ in range(N_SHIFTS):
        noise = 2 * torch.rand(x.shape, generator=generator).to(x.device) - 1
        shifted = values_at(x + RADIUS * deviations * noise)
        largest_move = torch.maximum(largest_move, ((shifted - values).norm(dim=-1) / length).cpu())
    infidelity = squared_error[acting].sum() / squared_change[acting].sum().clamp(min=1e-30)
    return Faithfulness(float(infidelity), float(largest_move[acting].mean()), int(acting.sum()))
