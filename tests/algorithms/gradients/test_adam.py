from __future__ import annotations

import pytest
import torch
from torch import nn

from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.errors import CheckpointError

LR = {"a": 1e-2, "b": 3e-3}


def parts() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {"a": nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), "b": nn.Linear(4, 2)}


def loss(modules: dict[str, nn.Module], x: torch.Tensor) -> torch.Tensor:
    return (modules["a"](x) - modules["b"](x) ** 2).square().mean() * 100


def test_steps_equal_torchs_adam_with_torchs_clipping() -> None:
    ours, theirs = parts(), parts()
    adam = PartAdam(ours, eps=1e-5)
    oracle = torch.optim.Adam([{"params": m.parameters(), "lr": LR[name]} for name, m in theirs.items()], eps=1e-5)
    for _ in range(20):
        x = torch.randn(32, 4)
        norms = adam.step(loss(ours, x), LR, max_norm=0.5)
        oracle.zero_grad()
        loss(theirs, x).backward()
        expected = [nn.utils.clip_grad_norm_(module.parameters(), 0.5) for module in theirs.values()]
        oracle.step()
        torch.testing.assert_close(norms, torch.stack(expected), rtol=1e-4, atol=1e-5)
    for name, module in ours.items():
        for got, want in zip(module.parameters(), theirs[name].parameters()):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def test_frozen_parameters_stay_as_they_are() -> None:
    modules, x = parts(), torch.randn(32, 4)
    encoder = modules["a"].get_submodule("0").requires_grad_(False)
    before = [weight.clone() for module in modules.values() for weight in module.parameters()]
    PartAdam(modules, eps=1e-5).step(loss(modules, x), LR, max_norm=0.5)
    after = [weight for module in modules.values() for weight in module.parameters()]
    n_frozen = len(list(encoder.parameters()))
    assert [torch.equal(old, new) for old, new in zip(before, after)] == [k < n_frozen for k in range(len(before))]


def test_without_a_bound_the_gradient_stays() -> None:
    modules = parts()
    norms = PartAdam(modules, eps=1e-8).step(loss(modules, torch.ones(1, 4)), LR, max_norm=0)
    assert norms.isfinite().all() and norms[0] > 0


def test_a_saved_state_continues_bit_for_bit() -> None:
    batches = torch.randn(6, 32, 4)
    straight, resumed = parts(), parts()
    adam = PartAdam(straight, eps=1e-5)
    for x in batches[:3]:
        adam.step(loss(straight, x), LR, 0.5)
    state = adam.state_dict()
    for name, module in resumed.items():
        module.load_state_dict(straight[name].state_dict())
    for x in batches[3:]:
        adam.step(loss(straight, x), LR, 0.5)
    again = PartAdam(resumed, eps=1e-5)
    again.load_state_dict(state)
    for x in batches[3:]:
        again.step(loss(resumed, x), LR, 0.5)
    assert all(torch.equal(a, b) for m in straight for a, b in zip(straight[m].parameters(), resumed[m].parameters()))


def test_a_state_of_other_parameters_is_refused() -> None:
    state = PartAdam({"a": nn.Linear(4, 2)}, eps=1e-5).state_dict()
    with pytest.raises(CheckpointError, match=r"'a'.*found 10 values, expected 58"):
        PartAdam(parts(), eps=1e-5).load_state_dict(state)
