from __future__ import annotations

import pytest
import torch

from marlnb.models import fast


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
        exact = x.double() @ weight.double().T + bias.double()
        exact = exact.tanh() if tanh else exact
        slopes = slope * (1 - exact**2) if tanh else slope.double()
        expected = (slopes @ weight.double(), torch.einsum("abo,abi->oi", slopes, x.double()), slopes.sum((0, 1)))
        without_gradient = fast.affine(x, weight, bias, tanh=tanh)
    torch.testing.assert_close(y.double(), exact, atol=5e-6, rtol=0)
    torch.testing.assert_close(without_gradient, y, atol=0, rtol=0)
    for found, wanted in zip(gradients, expected):
        torch.testing.assert_close(found.double(), wanted, atol=1e-6 * float(wanted.abs().max()), rtol=0)


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
