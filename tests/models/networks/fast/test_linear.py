from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

from marlnb.models.networks.fast.linear import fast_linear, weight_gradient


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("n_out", [5, 32])
@pytest.mark.parametrize("tanh", [True, False])
def test_outputs_and_gradients_are_those_of_float64(tanh: bool, n_out: int, n_threads: int) -> None:
    x, weight, bias = torch.randn(301, 2, 7), torch.randn(n_out, 7), torch.randn(n_out)
    scores = torch.randn(301, 2, n_out)
    ours = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    exact = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    expected = torch.nn.functional.linear(*exact)
    expected = expected.tanh() if tanh else expected
    with patch("torch.get_num_threads", return_value=n_threads):
        y = fast_linear(*ours, tanh=tanh)
        gradients = torch.autograd.grad((y * scores).sum(), ours)
    torch.testing.assert_close(y.double(), expected, atol=2e-6, rtol=1e-5)
    for gradient, wanted in zip(gradients, torch.autograd.grad((expected * scores).sum(), exact), strict=True):
        torch.testing.assert_close(gradient.double(), wanted, atol=1e-4, rtol=1e-5)
    with torch.no_grad():
        assert torch.equal(fast_linear(*ours, tanh=tanh), y)


def test_each_thread_sums_its_part_of_the_rows() -> None:
    gradient, x = torch.randn(600, 32), torch.randn(600, 7)
    with patch("torch.get_num_threads", return_value=4), patch("torch.bmm", wraps=torch.bmm) as product:
        ours = weight_gradient(gradient, x)
    assert [tuple(tensor.shape) for tensor in product.call_args.args] == [(4, 7, 150), (4, 150, 32)]
    torch.testing.assert_close(ours, gradient.T @ x, atol=1e-4, rtol=1e-5)


def test_an_input_without_gradient_costs_no_product() -> None:
    x, weight, bias = torch.randn(600, 7), torch.randn(32, 7, requires_grad=True), torch.randn(32, requires_grad=True)
    with torch.profiler.profile() as profile:
        torch.autograd.grad(fast_linear(x, weight, bias).sum(), [weight, bias])
    names = [event.name for event in profile.events()]
    assert names.count("aten::bmm") == 1 and "aten::mm" not in names
