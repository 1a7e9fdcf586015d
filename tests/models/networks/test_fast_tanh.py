from __future__ import annotations

import pytest
import torch

from marlnb.models.networks import fast_tanh as module
from marlnb.models.networks.fast_tanh import fast_tanh


@pytest.mark.parametrize("by_sigmoid", [True, False])
def test_tanh_is_tanh_with_tanhs_gradient(monkeypatch: pytest.MonkeyPatch, by_sigmoid: bool) -> None:
    monkeypatch.setattr(module, "is_intel", lambda: not by_sigmoid)
    x = torch.linspace(-12, 12, 100_001, requires_grad=True)
    product = 1 * x
    y = fast_tanh(product)
    assert (y.data_ptr() == product.data_ptr()) is by_sigmoid
    exact = x.detach().double().tanh()
    assert (y.double() - exact).abs().max() < 2e-7
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (gradient.double() - (1 - exact**2)).abs().max() < 5e-7
    with torch.no_grad():
        assert torch.equal(fast_tanh(x.clone()), y)


def test_compiled_code_has_the_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    monkeypatch.setattr(module, "is_intel", lambda: True)
    graph = make_fx(lambda x: fast_tanh(2 * x), tracing_mode="fake")(torch.zeros(3)).graph
    assert any("sigmoid" in str(node.target) for node in graph.nodes)
