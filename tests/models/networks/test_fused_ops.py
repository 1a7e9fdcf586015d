from __future__ import annotations

import pytest
import torch

from marlnb.models.networks import fused_ops as fast


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("sizes", [(4, 3, 5), (768, 18, 256), (768, 256, 256), (2000, 256, 5)])
def test_an_affine_map_and_its_gradients_are_those_of_double_precision(sizes: tuple[int, int, int], tanh: bool) -> None:
    rows, n_in, n_out = sizes
    x = torch.randn(rows // 2, 2, n_in, requires_grad=True)
    weight = (torch.randn(n_out, n_in) / n_in**0.5).requires_grad_()
    bias, slope = torch.randn(n_out, requires_grad=True), torch.randn(rows // 2, 2, n_out)
    y = fast.affine(x, weight, bias, tanh=tanh)
    gradients = torch.autograd.grad(y, (x, weight, bias), slope)

    with torch.no_grad():
        xs, weights, slopes = x.double(), weight.double(), slope.double()
        exact = xs @ weights.T + bias.double()
        magnitude = xs.abs() @ weights.T.abs() + bias.double().abs()
        sizes_of_slopes = slopes.abs()
        if tanh:
            exact = exact.tanh()
            slopes = slopes * (1 - exact**2)
            sizes_of_slopes *= 1 + magnitude  # 1 - y**2 is of a rounded y, which was that of a rounded sum
        expected = gradients_of(xs, weights, slopes)
        magnitudes = gradients_of(xs.abs(), weights.abs(), sizes_of_slopes)
        without_gradient = fast.affine(x, weight, bias, tanh=tanh)
    torch.testing.assert_close(without_gradient, y, atol=0, rtol=0)
    for actual, wanted, size in zip((y, *gradients), (exact, *expected), (magnitude, *magnitudes)):
        rounding = ((actual.double() - wanted).abs() / size).max() / torch.finfo(torch.float32).eps
        assert rounding < 8


def gradients_of(x: torch.Tensor, weight: torch.Tensor, slope: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of `x @ weight.T + bias` by x, weight and bias."""
    return slope @ weight, torch.einsum("abo,abi->oi", slope, x), slope.sum((0, 1))


def test_weights_held_still_take_no_gradient_and_pass_it_on() -> None:
    x, weight, bias = torch.randn(768, 256, requires_grad=True), torch.randn(256, 256), torch.randn(256)
    (to_x,) = torch.autograd.grad(fast.affine(x, weight, bias).sum(), x)
    torch.testing.assert_close(to_x, weight.sum(0).expand_as(x), atol=1e-4, rtol=0)


def test_an_update_of_a_wide_network_multiplies_by_onednn() -> None:
    x, weight, bias = torch.randn(768, 256), torch.randn(256, 256, requires_grad=True), torch.randn(256)
    with torch.profiler.profile() as profile:
        fast.affine(x, weight, bias, tanh=True).sum().backward()
    products = [event.key for event in profile.key_averages() if event.key.startswith(("mkldnn::", "aten::addmm"))]
    assert products == (["mkldnn::_linear_pointwise"] if torch.backends.mkldnn.is_available() else ["aten::addmm"])


def test_tanh_is_tanh_with_tanhs_gradient() -> None:
    x = torch.linspace(-12, 12, 100_001, requires_grad=True)
    y = fast.tanh_(x * 1)
    exact = x.detach().double().tanh()
    assert (y.double() - exact).abs().max() < 2e-7
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (gradient.double() - (1 - exact**2)).abs().max() < 5e-7
