"""Building blocks of losses: masked means and regression losses."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from marlnb.algorithms.configs.choices import RegressionLoss

HUBER_DELTA = 10.0
"""Of value losses: MAPPO's, Yu et al. 2022, appendix (arXiv:2103.01955)."""


def masked_mean(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of the values where the mask is set; 0 if it is set nowhere.

        sum(mask * values) / max(1, sum(mask))

    Dead or waiting agents stay in the tensors, with mask 0, so that shapes do not depend on who is alive.

    Args:
        values: any shape.
        mask: of the same shape, bool or 0 and 1; None: all values count.
    """
    if mask is None:
        return values.mean()
    weight = mask.to(values.dtype)
    return (values * weight).sum() / weight.sum().clamp_min(1)


def masked_means(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """`masked_mean` of each row: values `[training, ...]`, of several training runs at once, to `[training]`."""
    if mask is None:
        return values.flatten(1).mean(1)
    weight = mask.to(values.dtype)
    return (values * weight).flatten(1).sum(1) / weight.flatten(1).sum(1).clamp_min(1)


def masked_moments(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance (divided by n) and number n of the values where the mask is set; n is at least 1."""
    weight = mask.to(values.dtype)
    n = weight.sum().clamp_min(1)
    mean = (values * weight).sum() / n
    return mean, ((values - mean).square() * weight).sum() / n, n


def regression_loss(
    prediction: Tensor, target: Tensor, kind: RegressionLoss, *, delta: float = 1.0, l2_coef: float = 0.5
) -> Tensor:
    """Loss of each element, with e = prediction - target:

    l2:     l2_coef * e^2
    huber:  e^2 / 2 if |e| <= delta, else delta * (|e| - delta / 2)

    Source: Huber 1964, Robust Estimation of a Location Parameter.
    """
    if kind == "huber":
        return F.huber_loss(prediction, target, reduction="none", delta=delta)
    return l2_coef * (prediction - target).square()
