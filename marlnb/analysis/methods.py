"""captum's attribution methods behind one function: flat examples in, one value for each feature out."""

from __future__ import annotations

import warnings
from typing import Any, Literal, get_args

import torch
from captum.attr import DeepLift, FeatureAblation, InputXGradient, IntegratedGradients, Saliency
from torch import Tensor, nn

from marlnb.errors import AnalysisError, unknown

Method = Literal["integrated_gradients", "saliency", "input_x_gradient", "deeplift", "feature_ablation"]
COMPLETE: tuple[Method, ...] = ("integrated_gradients", "deeplift")
"""Methods whose values promise to add up to the output's difference from the baseline."""


def check_method(method: str) -> Method:
    """Raises AnalysisError for a method that is not one of them."""
    if method not in get_args(Method):
        raise AnalysisError(unknown("attribution method", method, get_args(Method)))
    return method  # type: ignore[return-value]


def explain(
    score: nn.Module, inputs: Tensor, baselines: Tensor, extras: tuple[Any, ...], method: Method, n_steps: int
) -> Tensor:
    """What each feature of each example contributes to its scalar, `[example, feature]`.

    Args:
        score: `(inputs, *extras) -> [example]`; each example's scalar reads only that example (or, for agents stacked
            on the example axis, only that agent's).
        inputs, baselines: `[example, feature]`; saliency and input x gradient have no baseline and ignore it.
        n_steps: points of the Gauss-Legendre quadrature of integrated gradients.
    Source: captum 0.9. Integrated gradients: Sundararajan et al. 2017 (arXiv:1703.01365); DeepLift, rescale rule:
        Shrikumar et al. 2017 (arXiv:1704.02685); saliency: the gradient's absolute value (arXiv:1312.6034).
    """
    if method == "integrated_gradients":
        quadrature = IntegratedGradients(score)
        values = quadrature.attribute(
            inputs, baselines, additional_forward_args=extras, n_steps=n_steps, method="gausslegendre"
        )
    elif method == "saliency":
        values = Saliency(score).attribute(_leaf(inputs), additional_forward_args=extras)
    elif method == "input_x_gradient":
        values = InputXGradient(score).attribute(_leaf(inputs), additional_forward_args=extras)
    elif method == "deeplift":
        with warnings.catch_warnings():  # captum announces the hooks that it sets and removes
            warnings.filterwarnings("ignore", message="Setting forward, backward hooks", category=UserWarning)
            values = DeepLift(score).attribute(_leaf(inputs), baselines, additional_forward_args=extras)
    else:
        values = FeatureAblation(score).attribute(
            inputs, baselines, additional_forward_args=extras, perturbations_per_eval=_at_once(inputs)
        )
    return values.detach()


def _leaf(inputs: Tensor) -> Tensor:
    return inputs.detach().clone().requires_grad_()


def _at_once(inputs: Tensor) -> int:
    """Features ablated in one forward pass: all of them, unless that would be a large batch."""
    return max(1, min(inputs.shape[1], 65536 // max(1, inputs.shape[0])))


def evaluate_score(score: nn.Module, inputs: Tensor, extras: tuple[Any, ...]) -> Tensor:
    """The scalars `[example]`, without gradients."""
    with torch.no_grad():
        return score(inputs, *extras)
