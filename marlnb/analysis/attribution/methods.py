"""The attribution methods behind one function: flat examples in, one value for each feature out. captum computes them.

Left out on purpose: guided backpropagation and deconvolution, which do not depend on the weights above the first layers
(Adebayo et al. 2018, arXiv:1810.03292); LRP, whose rules captum has for no layer with an agent axis; LIME, of which
kernel_shap is the case with a kernel that makes the values Shapley's; permuting a feature, which is feature_ablation
with `baseline="distribution"`; occlusion, which is feature_ablation of `features` in windows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    LayerConductance,
    Saliency,
    ShapleyValueSampling,
)
from torch import Tensor, nn

from marlnb.analysis.attribution.forward import owing
from marlnb.analysis.attribution.kernel_shap import kernel_shap
from marlnb.errors import AnalysisError, unknown
from marlnb.training.collect.seeds import GLOBAL_GENERATORS

Method = Literal[
    "integrated_gradients",
    "gradient_shap",
    "deeplift",
    "deeplift_shap",
    "gradient",
    "saliency",
    "input_x_gradient",
    "feature_ablation",
    "shapley_value_sampling",
    "kernel_shap",
    "conductance",
]
COMPLETE: tuple[str, ...] = (
    "integrated_gradients",
    "deeplift",
    "deeplift_shap",
    "shapley_value_sampling",
    "kernel_shap",
    "conductance",
)
"""Methods whose values promise to add up to the output's difference from the baseline."""
WITHOUT_BASELINE: tuple[str, ...] = ("gradient", "saliency", "input_x_gradient")
OF_DISTRIBUTION: tuple[str, ...] = ("gradient_shap", "deeplift_shap")
"""Methods that compare with rows drawn from the recording."""
_EVALUATIONS = 32768  # examples that go through the policy at once


@dataclass(frozen=True)
class MethodOptions:
    """How a method is computed.

    Attributes:
        n_steps: points of the Gauss-Legendre quadrature of integrated_gradients and conductance.
        n_samples: permutations of shapley_value_sampling; coalitions of kernel_shap (all of them, if there are as few).
        smooth: noisy copies of each example over which values are averaged; 0: none.
        noise: their standard deviation, as a share of each feature's.
    """

    method: Method
    n_steps: int = 50
    n_samples: int = 25
    smooth: int = 0
    noise: float = 0.1
    seed: int = 0


def check_method(method: str) -> Method:
    """Raises AnalysisError for a method that is not one of them."""
    if method not in get_args(Method):
        raise AnalysisError(unknown("attribution method", method, get_args(Method)))
    return method  # type: ignore[return-value]


def explain(
    score: nn.Module,
    inputs: Tensor,
    baselines: Sequence[Tensor],
    extras: tuple[Any, ...],
    options: MethodOptions,
    *,
    groups: Tensor | None = None,
    deviations: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """What each feature, or group of features, of each example contributes to its scalar, `[example, feature]`.

    Args:
        score: `(inputs, *extras) -> [example]`; each example's scalar reads only that example (or, for agents stacked
            on the example axis, only that agent's).
        inputs: `[example, feature]`; baselines: each `[example, feature]`; the values are averaged over them.
        groups: `[feature]`, the number of each feature's group, counted from 0. Perturbations change a group together;
            the values of other methods are added.
        deviations: `[example or 1, feature]`, what `noise` is a share of.
    Source: captum 0.9. Integrated gradients: Sundararajan et al. 2017 (arXiv:1703.01365), over several baselines
        Erion et al. 2021 (arXiv:1906.10670); GradientShap and DeepLiftShap: Lundberg and Lee 2017 (arXiv:1705.07874);
        DeepLift, rescale rule: Shrikumar et al. 2017 (arXiv:1704.02685); saliency: the gradient's absolute value
        (arXiv:1312.6034); Shapley values by permutations: Castro et al. 2009; SmoothGrad: arXiv:1706.03825.
    """
    if not options.smooth:
        return _averaged(score, inputs, baselines, extras, options, groups, generator)
    spread = options.noise * (torch.ones_like(inputs[:1]) if deviations is None else deviations)
    total: Tensor | float = 0.0
    for _ in range(options.smooth):
        noisy = inputs + spread * torch.randn(inputs.shape, generator=generator).to(inputs.device)
        total = total + _averaged(score, noisy, baselines, extras, options, groups, generator)
    assert isinstance(total, Tensor)
    return total / options.smooth


def _averaged(
    score: nn.Module,
    inputs: Tensor,
    baselines: Sequence[Tensor],
    extras: tuple[Any, ...],
    options: MethodOptions,
    groups: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    method = METHODS[options.method]
    compared = list(baselines[:1] if options.method in WITHOUT_BASELINE else baselines)
    total = torch.zeros(())
    for baseline in compared:
        with owing():
            values = method(score, inputs, baseline, extras, options, groups, generator).detach()
        if groups is not None and values.shape[-1] == len(groups) and options.method not in _BY_GROUP:
            values = added(values, groups)
        total = total.to(values.device) + values
    return total / len(compared)


def added(values: Tensor, groups: Tensor) -> Tensor:
    """Values `[..., feature]` added by group, `[..., group]`."""
    sums = values.new_zeros(*values.shape[:-1], int(groups.max()) + 1)
    return sums.index_add(-1, groups.to(values.device), values)


def _integrated_gradients(
    score: nn.Module, x: Tensor, baseline: Tensor, extras: Any, options: MethodOptions, *_: Any
) -> Tensor:
    quadrature = IntegratedGradients(score)
    return quadrature.attribute(
        x, baseline, additional_forward_args=extras, n_steps=options.n_steps, method="gausslegendre"
    )


def _gradient_shap(
    score: nn.Module,
    x: Tensor,
    baseline: Tensor,
    extras: Any,
    options: MethodOptions,
    groups: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    """One random point on the way from a drawn baseline, as captum's GradientShap, whose baselines are all agents'."""
    share = torch.rand(len(x), 1, generator=generator).to(x.device)
    point = _leaf(baseline + share * (x - baseline))
    (gradient,) = torch.autograd.grad(score(point, *extras).sum(), point)
    return gradient * (x - baseline)


def _gradient(score: nn.Module, x: Tensor, baseline: Tensor, extras: Any, *_: Any) -> Tensor:
    return Saliency(score).attribute(_leaf(x), abs=False, additional_forward_args=extras)


def _saliency(score: nn.Module, x: Tensor, baseline: Tensor, extras: Any, *_: Any) -> Tensor:
    return Saliency(score).attribute(_leaf(x), additional_forward_args=extras)


def _input_x_gradient(score: nn.Module, x: Tensor, baseline: Tensor, extras: Any, *_: Any) -> Tensor:
    return InputXGradient(score).attribute(_leaf(x), additional_forward_args=extras)


def _deeplift(score: nn.Module, x: Tensor, baseline: Tensor, extras: Any, *_: Any) -> Tensor:
    with warnings.catch_warnings():  # captum announces the hooks that it sets and removes
        warnings.filterwarnings("ignore", message="Setting forward, backward hooks", category=UserWarning)
        return DeepLift(score).attribute(_leaf(x), baseline.contiguous(), additional_forward_args=extras)


def _feature_ablation(
    score: nn.Module, x: Tensor, baseline: Tensor, extras: Any, options: MethodOptions, groups: Tensor | None, *_: Any
) -> Tensor:
    values = FeatureAblation(score).attribute(
        x, baseline, additional_forward_args=extras, feature_mask=_mask(groups), perturbations_per_eval=_at_once(x)
    )
    return _first_of_each(values, groups)


def _shapley(
    score: nn.Module,
    x: Tensor,
    baseline: Tensor,
    extras: Any,
    options: MethodOptions,
    groups: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    with GLOBAL_GENERATORS, torch.random.fork_rng(devices=[]):  # captum draws permutations from torch's global stream
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        values = ShapleyValueSampling(score).attribute(
            x,
            baseline,
            additional_forward_args=extras,
            feature_mask=_mask(groups),
            n_samples=options.n_samples,
            perturbations_per_eval=_at_once(x),
        )
    return _first_of_each(values, groups)


def _kernel_shap(
    score: nn.Module,
    x: Tensor,
    baseline: Tensor,
    extras: Any,
    options: MethodOptions,
    groups: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    return kernel_shap(score, x, baseline, extras, n_samples=options.n_samples, groups=groups, generator=generator)


def conductance(
    score: nn.Module, layer: nn.Module, inputs: Tensor, baseline: Tensor, extras: tuple[Any, ...], n_steps: int
) -> Tensor:
    """What flows through each unit of a layer from the baseline to the inputs, `[example, agent of the layer, unit]`.

    Source: Dhamdhere et al. 2018 (arXiv:1805.12233); computed by captum.
    """
    with owing():
        values: Tensor = LayerConductance(score, layer).attribute(
            inputs, baseline, additional_forward_args=extras, n_steps=n_steps, method="gausslegendre"
        )
    return values.detach()


METHODS: dict[str, Callable[..., Tensor]] = {
    "integrated_gradients": _integrated_gradients,
    "gradient_shap": _gradient_shap,
    "deeplift": _deeplift,
    "deeplift_shap": _deeplift,
    "gradient": _gradient,
    "saliency": _saliency,
    "input_x_gradient": _input_x_gradient,
    "feature_ablation": _feature_ablation,
    "shapley_value_sampling": _shapley,
    "kernel_shap": _kernel_shap,
}
_BY_GROUP = ("feature_ablation", "shapley_value_sampling", "kernel_shap")


def evaluations(options: MethodOptions, n_features: int) -> int:
    """Passes of an example through the policy that a method holds in memory at once."""
    if options.method in ("integrated_gradients", "conductance"):
        return options.n_steps
    return min(n_features, 64) if options.method in _BY_GROUP else 2


def rows_at_once(options: MethodOptions, n_features: int, examples_a_row: int) -> int:
    """Rows whose examples fit in memory, and about in a processor's cache, together."""
    return max(1, _EVALUATIONS // (evaluations(options, n_features) * examples_a_row))


def _mask(groups: Tensor | None) -> Tensor | None:
    return None if groups is None else groups.unsqueeze(0)


def _first_of_each(values: Tensor, groups: Tensor | None) -> Tensor:
    """One value a group `[example, group]`: captum repeats it at each of the group's features."""
    if groups is None:
        return values
    first = [int((groups == k).nonzero()[0]) for k in range(int(groups.max()) + 1)]
    return values[:, first]


def _leaf(inputs: Tensor) -> Tensor:
    return inputs.detach().clone().requires_grad_()


def _at_once(inputs: Tensor) -> int:
    """Features ablated in one forward pass: all of them, unless that would be a large batch."""
    return max(1, min(inputs.shape[1], 2 * _EVALUATIONS // max(1, inputs.shape[0])))


def evaluate_score(score: nn.Module, inputs: Tensor, extras: tuple[Any, ...]) -> Tensor:
    """The scalars `[example]`, without gradients."""
    with torch.no_grad():
        return score(inputs, *extras)
