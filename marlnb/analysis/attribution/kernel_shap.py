"""Shapley values as a weighted regression on coalitions of features, for a whole batch of examples at once.

captum's KernelShap fits one regression an example, in a Python loop; here all examples share the coalitions, so that
one solution serves them all. With every coalition in it, the values are Shapley's exactly.
"""

from __future__ import annotations

import itertools
from math import comb
from typing import Any

import torch
from torch import Tensor, nn

MOST_ENUMERATED = 14  # features of which all coalitions can be listed


@torch.no_grad()
def kernel_shap(
    score: nn.Module,
    inputs: Tensor,
    baseline: Tensor,
    extras: tuple[Any, ...],
    *,
    n_samples: int,
    groups: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Values `[example, feature or group]` that add up to the scalar's difference from the baseline.

    Args:
        n_samples: coalitions; where there are no more than that many, all of them.
        groups: `[feature]`, numbers of the groups that enter a coalition together.
    Source: Lundberg and Lee 2017, equations 8 and 9 (arXiv:1705.07874).
    """
    which = torch.arange(inputs.shape[1]) if groups is None else groups.cpu()
    n = int(which.max()) + 1
    full, empty = score(inputs, *extras), score(baseline, *extras)
    if n == 1:
        return (full - empty).unsqueeze(-1)
    members, weights = coalitions(n, n_samples, generator)
    found = []
    for member in members:
        chosen = member[which].to(inputs.device)
        found.append(score(torch.where(chosen, inputs, baseline), *extras))
    z = members.double()
    outcome = torch.stack(found).double().cpu() - empty.double().cpu()  # [coalition, example]
    total = (full - empty).double().cpu()
    # the last feature takes what is left, so that the values add up
    x = z[:, :-1] - z[:, -1:]
    y = outcome - z[:, -1:] * total
    weighed = x.T * weights
    first = torch.linalg.lstsq(weighed @ x, weighed @ y).solution
    values = torch.cat((first, (total - first.sum(0)).unsqueeze(0))).T
    return values.to(inputs.dtype).to(inputs.device)


def coalitions(n: int, n_samples: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Coalitions `[coalition, feature]` bool, neither empty nor whole, and the weight of each `[coalition]`.

    All of them with the Shapley kernel's weights, or `n_samples` drawn as that kernel weighs them, each with the one
    that it leaves out.
    """
    if n <= MOST_ENUMERATED and 2**n - 2 <= n_samples:
        chosen = [c for size in range(1, n) for c in itertools.combinations(range(n), size)]
        members = torch.zeros(len(chosen), n, dtype=torch.bool)
        for row, features in enumerate(chosen):
            members[row, list(features)] = True
        sizes = members.sum(1)
        kernel = torch.tensor([(n - 1) / (comb(n, s) * s * (n - s)) for s in sizes.tolist()], dtype=torch.float64)
        return members, kernel
    by_size = torch.tensor([1 / (s * (n - s)) for s in range(1, n)])
    drawn = torch.multinomial(by_size, max(1, n_samples // 2), replacement=True, generator=generator) + 1
    order = torch.rand(len(drawn), n, generator=generator).argsort(1).argsort(1)
    half = order < drawn.unsqueeze(1)
    members = torch.cat((half, ~half))
    return members, torch.ones(len(members), dtype=torch.float64)
