from __future__ import annotations

import torch

from marlnb.models.networks.fast.tanh import fast_tanh_


def test_tanh_is_tanh_with_tanhs_gradient() -> None:
    x = torch.linspace(-12, 12, 100_001, requires_grad=True)
    product = 1 * x
    y = fast_tanh_(product)
    assert y.data_ptr() == product.data_ptr()
    exact = x.detach().double().tanh()
    assert (y.double() - exact).abs().max() < 2e-7
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (gradient.double() - (1 - exact**2)).abs().max() < 5e-7
    with torch.no_grad():
        assert torch.equal(fast_tanh_(x.clone()), y)
