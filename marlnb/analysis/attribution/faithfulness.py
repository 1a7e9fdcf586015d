"""How far an attribution tells what the output does: infidelity and sensitivity, over a seeded sample of rows.

Source: Yeh et al. 2019 (arXiv:1901.09392), sections 2 and 3. captum.metrics has both, but repeats examples one by one,
which would part the agents of a row; the tests hold these to captum's for one agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from marlnb.analysis.attribution.methods import WITHOUT_BASELINE, MethodOptions, explain
from marlnb.analysis.attribution.target import Examples

N_ROWS, N_SUBSETS, N_SHIFTS, RADIUS = 64, 16, 3, 0.02
INFIDELITY_LIMIT, SENSITIVITY_LIMIT = 0.5, 1.0


@dataclass(frozen=True)
class Faithfulness:
    """Both numbers are shares: 0 is best.

    Attributes:
        infidelity: how far the values of random sets of features (half of them, at the baseline together) are from the
            change that they make: the squared error, as a share of the squared change; values of 0 have 1.
        sensitivity: how far the values move, at most, as a share of their length, when each feature moves by up to
            2% of its standard deviation; the mean over rows.
        n_rows: rows sampled; n_subsets: sets of features at each.
    """

    infidelity: float
    sensitivity: float
    n_rows: int
    n_subsets: int = N_SUBSETS

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if not (isfinite(self.infidelity) and isfinite(self.sensitivity)):
            found.append("infidelity and sensitivity could not be measured: something among the rows is not finite")
        if self.infidelity > INFIDELITY_LIMIT:
            found.append(
                f"infidelity {self.infidelity:.2f}: values miss most of what features do together "
                f"(tolerated: {INFIDELITY_LIMIT}); another method or baseline may tell more"
            )
        if self.sensitivity > SENSITIVITY_LIMIT:
            found.append(
                f"sensitivity {self.sensitivity:.2f}: values change by more than their size when observations move by "
                "2% of their deviation; smooth=20 would average over that"
            )
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@torch.no_grad()
def measure(
    examples: Examples,
    baselines: Sequence[Tensor],
    options: MethodOptions,
    *,
    acting: Tensor,
    groups: Tensor | None,
    deviations: Tensor,
) -> Faithfulness:
    """Measures a method on a few examples. Of gradients, what is compared is the gradient times the change of features.

    Args:
        baselines: as for `explain`; acting: `[example]` bool, which ones count.
        deviations: `[example or 1, feature]`, of each feature over the recording.
    """
    generator = torch.Generator().manual_seed(options.seed)
    gradients = options.method in WITHOUT_BASELINE
    method = MethodOptions("gradient", seed=options.seed) if gradients else options
    x, score, extras = examples.inputs, examples.score, examples.extras
    groups = None if gradients else groups
    known = _values(examples, x, baselines, method, groups, deviations)
    which = torch.arange(x.shape[1]) if groups is None else groups.cpu()
    missed, changed = torch.zeros(len(x)), torch.zeros(len(x))
    before = score(x, *extras)
    for _ in range(N_SUBSETS):
        taken = torch.rand(len(x), int(which.max()) + 1, generator=generator) < 0.5
        reference = baselines[int(torch.randint(len(baselines), (), generator=generator))]
        without = torch.where(taken[:, which].to(x.device), reference, x)
        change = before - score(without, *extras)
        told = (known * (x - without if gradients else taken.to(x))).sum(-1)
        missed += (told - change).square().cpu()
        changed += change.square().cpu()
    moved = torch.zeros(len(x))
    size = known.norm(dim=-1).clamp(min=1e-12)
    for _ in range(N_SHIFTS):
        noise = 2 * torch.rand(x.shape, generator=generator).to(x.device) - 1
        shifted = _values(examples, x + RADIUS * deviations * noise, baselines, method, groups, deviations)
        moved = torch.maximum(moved, ((shifted - known).norm(dim=-1) / size).cpu())
    share = missed[acting].sum() / changed[acting].sum().clamp(min=1e-30)
    return Faithfulness(float(share), float(moved[acting].mean()), int(acting.sum()))


def _values(
    examples: Examples,
    inputs: Tensor,
    baselines: Sequence[Tensor],
    method: MethodOptions,
    groups: Tensor | None,
    deviations: Tensor,
) -> Tensor:
    """The values at `inputs`, with the same random numbers each time."""
    same = torch.Generator().manual_seed(method.seed)
    with torch.enable_grad():
        return explain(
            examples.score,
            inputs,
            baselines,
            examples.extras,
            method,
            groups=groups,
            deviations=deviations,
            generator=same,
        )
