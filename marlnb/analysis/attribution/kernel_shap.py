"""Shapley values as a weighted regression on coalitions of features, for a whole batch of examples at once.

captum's KernelShap fits one regression per example in a Python loop. Here all examples share the coalitions, so one
linear system serves them all. With every coalition in it, the values are exactly Shapley's.
"""

from __future__ import annotations

import itertools
from math import comb
from typing import Any

import torch
from torch import Tensor, nn

MAX_ENUMERATED = 14  # features of which all coalitions can be listed


@torch.no_grad()
def shapley_by_regression(
    score: nn.Module,
    inputs: Tensor,
    baseline: Tensor,
    extras: tuple[Any, ...],
    n_samples: int,
    groups: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Values `[example, feature or group]` that add up to f(x) - f(x').

    With f(z) the score of the coalition z in {0, 1}^n, whose other features are at the baseline:

        phi = argmin sum_z w(z) (f(z) - f(x') - z'phi)^2    subject to sum_i phi_i = f(x) - f(x')
        w(z) = (n - 1) / (C(n, |z|) |z| (n - |z|))

    Args:
        n_samples: coalitions; all of them if there are no more than that.
        groups: `[feature]`, the number of each feature's group, whose members enter a coalition together.
    Source: Lundberg and Lee 2017, equations 8 and 9 (arXiv:1705.07874).
    """
    group_of = torch.arange(inputs.shape[1]) if groups is None else groups.cpu()
    n = int(group_of.max()) + 1
    full, empty = score(inputs, *extras), score(baseline, *extras)
    if n == 1:
        return (full - empty).unsqueeze(-1)
    members, weights = coalitions(n, n_samples, generator)
    included = members[:, group_of].to(inputs.device)
    scores = [score(torch.where(features, inputs, baseline), *extras) for features in included]
    z = members.double()
    outcome = torch.stack(scores).double().cpu() - empty.double().cpu()  # [coalition, example]
    total = (full - empty).double().cpu()
    # the constraint eliminates the last feature: phi_n = total - sum of the others
    x = z[:, :-1] - z[:, -1:]
    y = outcome - z[:, -1:] * total
    weighted = x.T * weights
    others = torch.linalg.lstsq(weighted @ x, weighted @ y).solution
    values = torch.cat((others, (total - others.sum(0)).unsqueeze(0))).T
    return values.to(inputs.dtype).to(inputs.device)


def coalitions(n: int, n_samples: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Coalitions `[coalition, feature]` bool, neither empty nor full, and their weights `[coalition]`.

    All of them with the Shapley kernel's weights, or `n_samples` drawn with probabilities proportional to the kernel,
    each with its complement.
    """
    if n <= MAX_ENUMERATED and 2**n - 2 <= n_samples:
        all_coalitions = [c for size in range(1, n) for c in itertools.combinations(range(n), size)]
        members = torch.tensor([[k in coalition for k in range(n)] for coalition in all_coalitions])
        sizes = members.sum(1)
        kernel = torch.tensor([(n - 1) / (comb(n, s) * s * (n - s)) for s in sizes.tolist()], dtype=torch.float64)
        return members, kernel
    by_size = torch.tensor([1 / (s * (n - s)) for s in range(1, n)])
    sizes = torch.multinomial(by_size, max(1, n_samples // 2), replacement=True, generator=generator) + 1
    order = torch.rand(len(sizes), n, generator=generator).argsort(1).argsort(1)
    half = order < sizes.unsqueeze(1)
    members = torch.cat((half, ~half))
    return members, torch.ones(len(members), dtype=torch.float64)
