from __future__ import annotations

import torch

from marlnb.models.policies.value_norm import ValueNorm


def test_before_any_return_it_is_the_identity() -> None:
    norm, x = ValueNorm(), torch.randn(9)
    norm.update(torch.empty(0))
    assert torch.equal(norm.normalise(x), x) and torch.equal(norm.denormalise(x), x)


def test_the_first_returns_set_mean_and_deviation_without_bias() -> None:
    norm, returns = ValueNorm(decay=0.99), torch.randn(1000) * 3 - 40
    norm.update(returns)
    mean, std = norm.statistics()
    torch.testing.assert_close(mean, returns.mean())
    torch.testing.assert_close(std, returns.std(correction=0))
    torch.testing.assert_close(norm.denormalise(norm.normalise(returns)), returns)


def test_statistics_are_the_debiased_exponential_average_by_hand() -> None:
    norm, batches = ValueNorm(decay=0.9), [torch.randn(50) + k for k in range(4)]
    for batch in batches:
        norm.update(batch)
    weights = torch.tensor([0.1 * 0.9 ** (3 - k) for k in range(4)], dtype=torch.float64)
    weights = weights / weights.sum()
    mean = sum(w * b.double().mean() for w, b in zip(weights, batches))
    square = sum(w * b.double().square().mean() for w, b in zip(weights, batches))
    torch.testing.assert_close(norm.statistics()[0].double(), mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(norm.statistics()[1].double(), (square - mean**2) ** 0.5, atol=1e-6, rtol=0)


def test_constant_returns_do_not_blow_up() -> None:
    norm = ValueNorm()
    norm.update(torch.full((10,), 5.0))
    torch.testing.assert_close(norm.normalise(torch.tensor(5.01)), torch.tensor(1.0), atol=1e-3, rtol=0)


def test_statistics_travel_with_the_weights() -> None:
    norm, other = ValueNorm(), ValueNorm()
    norm.update(torch.randn(10))
    other.load_state_dict(norm.state_dict())
    assert torch.equal(other.normalise(torch.ones(3)), norm.normalise(torch.ones(3)))
