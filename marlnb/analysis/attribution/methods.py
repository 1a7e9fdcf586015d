"""The attribution methods, each one function registered by its name. captum computes most of them.

Notation: f is the explained scalar, x an example's features, x' the baseline, phi_i the value of feature i.

Left out on purpose: guided backpropagation and deconvolution, which do not depend on the weights above the first layers
(Adebayo et al. 2018, arXiv:1810.03292); LRP, whose rules captum does not have for layers with an agent axis; LIME, of
which kernel_shap is the case whose kernel yields Shapley values; permuting a feature, which is feature_ablation with
`baseline="distribution"`; occlusion, which is feature_ablation of `features` in windows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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

from marlnb.analysis.attribution.gradients import by_sum
from marlnb.analysis.attribution.kernel_shap import shapley_by_regression
from marlnb.training.collect.seeds import GENERATORS_LOCK

MAX_EXAMPLES = 32768  # that go through the policy at once


@dataclass(frozen=True)
class MethodCall:
    """What a method is computed from.

    Attributes:
        score: `(inputs, *extras) -> [example]`, the explained scalar.
        inputs: `[example, feature]`.
        baseline: `[example, feature]`.
        extras: further arguments of `score`.
        groups: `[feature]`, the number of each feature's group; None: no groups.
        layer: of conductance, whose units are explained.
        n_steps: quadrature points.
        n_samples: permutations or coalitions.
        generator: of everything random.
    """

    score: nn.Module
    inputs: Tensor
    baseline: Tensor
    extras: tuple[Any, ...]
    groups: Tensor | None = None
    layer: nn.Module | None = None
    n_steps: int = 1
    n_samples: int = 1
    generator: torch.Generator | None = None

    @property
    def differentiable_inputs(self) -> Tensor:
        return self.inputs.detach().clone().requires_grad_()

    def perturb(self, method: FeatureAblation, **options: int) -> Tensor:
        """Values `[example, feature or group]` of a captum method that changes features, or groups of them.

        One forward pass ablates all features, unless that would be a large batch. captum repeats a group's value at
        each of its features; here each group has one.
        """
        values: Tensor = method.attribute(
            self.inputs,
            self.baseline,
            additional_forward_args=self.extras,
            feature_mask=None if self.groups is None else self.groups.unsqueeze(0),
            perturbations_per_eval=max(1, min(self.inputs.shape[1], 2 * MAX_EXAMPLES // max(1, len(self.inputs)))),
            **options,
        )
        if self.groups is None:
            return values
        first = [int((self.groups == k).nonzero()[0]) for k in range(int(self.groups.max()) + 1)]
        return values[:, first]


Compute = Callable[[MethodCall], Tensor]
BaselineUse = Literal["one", "none", "distribution"]


@dataclass(frozen=True)
class AttributionMethod:
    """A registered method.

    Attributes:
        name: as users write it.
        compute: `MethodCall -> [example, feature]`; `[example, group]` if the method perturbs groups.
        complete: the values add up to f(x) - f(x').
        baseline: one, none, or distribution (rows drawn from the recording, over which values are averaged).
        integrates: the method evaluates `n_steps` points between the baseline and the inputs.
        perturbs_groups: the method changes the features of a group together; otherwise their values are added.
        by_layer: the method explains by the units of a layer.
    """

    name: str
    compute: Compute
    complete: bool = False
    baseline: BaselineUse = "one"
    integrates: bool = False
    perturbs_groups: bool = False
    by_layer: bool = False

    def n_evaluations(self, n_steps: int, n_features: int) -> int:
        """Passes of one example through the policy that are in memory at once."""
        if self.integrates:
            return n_steps
        return min(n_features, 64) if self.perturbs_groups else 2

    def default_n_samples(self, n_features: int) -> int:
        """Permutations of shapley_value_sampling, coalitions of kernel_shap; 0 for methods that draw none."""
        if self.name == "kernel_shap":
            return min(2 ** min(n_features, 12) - 2, 256 + 2 * n_features) if n_features > 1 else 1
        return 25 if self.name == "shapley_value_sampling" else 0


METHODS: dict[str, AttributionMethod] = {}


def attribution_method(
    *,
    complete: bool = False,
    baseline: BaselineUse = "one",
    integrates: bool = False,
    perturbs_groups: bool = False,
    by_layer: bool = False,
) -> Callable[[Compute], Compute]:
    """Registers a method under its function's name; the arguments are those of `AttributionMethod`."""

    def register(compute: Compute) -> Compute:
        name = compute.__name__
        METHODS[name] = AttributionMethod(name, compute, complete, baseline, integrates, perturbs_groups, by_layer)
        return compute

    return register


@attribution_method(complete=True, integrates=True)
def integrated_gradients(call: MethodCall) -> Tensor:
    """phi_i = (x_i - x'_i) integral_0^1 df(x' + a (x - x')) / dx_i da, by Gauss-Legendre quadrature.

    Source: Sundararajan et al. 2017, section 3 (arXiv:1703.01365); averaged over several baselines, Erion et al. 2021
        (arXiv:1906.10670).
    """
    return by_sum(IntegratedGradients(call.score)).attribute(
        call.inputs, call.baseline, additional_forward_args=call.extras, n_steps=call.n_steps, method="gausslegendre"
    )


@attribution_method(baseline="distribution")
def gradient_shap(call: MethodCall) -> Tensor:
    """phi_i = E_{x', a}[(x_i - x'_i) df(x' + a (x - x')) / dx_i], with a uniform in [0, 1]: one draw per baseline.

    captum's GradientShap draws one baseline for all examples, that is, for all agents.

    Source: Lundberg and Lee 2017 (arXiv:1705.07874).
    """
    share = torch.rand(len(call.inputs), 1, generator=call.generator).to(call.inputs.device)
    point = (call.baseline + share * (call.inputs - call.baseline)).detach().clone().requires_grad_()
    (gradient_at_point,) = torch.autograd.grad(call.score(point, *call.extras).sum(), point)
    return gradient_at_point * (call.inputs - call.baseline)


@attribution_method(complete=True)
def deeplift(call: MethodCall) -> Tensor:
    """phi_i = (x_i - x'_i) m_i: multipliers m = delta output / delta input of each nonlinearity, by the chain rule.

    Source: Shrikumar et al. 2017, the rescale rule (arXiv:1704.02685).
    """
    with warnings.catch_warnings():  # captum announces the hooks that it sets and removes
        warnings.filterwarnings("ignore", message="Setting forward, backward hooks", category=UserWarning)
        return by_sum(DeepLift(call.score)).attribute(
            call.differentiable_inputs, call.baseline.contiguous(), additional_forward_args=call.extras
        )


@attribution_method(complete=True, baseline="distribution")
def deeplift_shap(call: MethodCall) -> Tensor:
    """phi_i = E_{x'}[deeplift], over baselines x' drawn from the recording.

    Source: Lundberg and Lee 2017, section 4.2 (arXiv:1705.07874).
    """
    return deeplift(call)


@attribution_method(baseline="none")
def gradient(call: MethodCall) -> Tensor:
    """phi_i = df(x) / dx_i."""
    return by_sum(Saliency(call.score)).attribute(
        call.differentiable_inputs, abs=False, additional_forward_args=call.extras
    )


@attribution_method(baseline="none")
def saliency(call: MethodCall) -> Tensor:
    """phi_i = |df(x) / dx_i|.

    Source: Simonyan et al. 2013 (arXiv:1312.6034).
    """
    return gradient(call).abs()


@attribution_method(baseline="none")
def input_x_gradient(call: MethodCall) -> Tensor:
    """phi_i = x_i df(x) / dx_i.

    Source: Shrikumar et al. 2016 (arXiv:1605.01713).
    """
    return by_sum(InputXGradient(call.score)).attribute(call.differentiable_inputs, additional_forward_args=call.extras)


@attribution_method(perturbs_groups=True)
def feature_ablation(call: MethodCall) -> Tensor:
    """phi_i = f(x) - f(x with feature i at its baseline)."""
    return call.perturb(FeatureAblation(call.score))


@attribution_method(complete=True, perturbs_groups=True)
def shapley_value_sampling(call: MethodCall) -> Tensor:
    """phi_i = E_order[f(features up to i in the order) - f(features before i)], over random orders of the features.

    Features that are not included are at their baseline.

    Source: Castro et al. 2009, Polynomial calculation of the Shapley value based on sampling.
    """
    with GENERATORS_LOCK, torch.random.fork_rng(devices=[]):  # captum draws permutations from torch's global stream
        torch.manual_seed(int(torch.randint(2**31, (), generator=call.generator)))
        return call.perturb(ShapleyValueSampling(call.score), n_samples=call.n_samples)


@attribution_method(complete=True, perturbs_groups=True)
def kernel_shap(call: MethodCall) -> Tensor:
    """Shapley values by weighted least squares on coalitions of features: see `shapley_by_regression`."""
    return shapley_by_regression(
        call.score, call.inputs, call.baseline, call.extras, call.n_samples, call.groups, call.generator
    )


@attribution_method(complete=True, integrates=True, by_layer=True)
def conductance(call: MethodCall) -> Tensor:
    """What flows through each unit y_j of a layer, `[example, agent of the layer, unit]`:

        phi_j = sum_i (x_i - x'_i) integral_0^1 (df / dy_j) (dy_j / dx_i) at x' + a (x - x') da

    Source: Dhamdhere et al. 2018 (arXiv:1805.12233).
    """
    values: Tensor = LayerConductance(call.score, call.layer).attribute(
        call.inputs, call.baseline, additional_forward_args=call.extras, n_steps=call.n_steps, method="gausslegendre"
    )
    return values.detach()
