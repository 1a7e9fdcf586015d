from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.shards import ShardedLoss
from marlnb.algorithms.losses import masked_mean
from marlnb.training.collect.threads import torch_threads


def minibatch(acting: float | None) -> dict[str, Tensor]:
    """`acting`: the probability that an agent acted; None: all did, and there is no mask."""
    torch.manual_seed(0)
    samples = {"x": torch.randn(301, 3, 4), "log_prob": torch.randn(301, 3)}
    return samples if acting is None else samples | {"weight": (torch.rand(301, 3) < acting).float()}


@pytest.mark.parametrize("acting", [None, 0.3, 0.0])
def test_parts_of_a_minibatch_add_up_to_its_gradient_and_metrics(acting: float | None) -> None:
    network, samples = nn.Linear(4, 1), minibatch(acting)
    threads: set[int] = set()

    def loss(part: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        threads.add(torch.get_num_threads())
        error = masked_mean((network(part["x"]).squeeze(-1) - part["log_prob"]).square(), part.get("weight"))
        return error, {"error": error.detach()}

    expected_loss, expected_metrics = loss(samples)
    expected = torch.autograd.grad(expected_loss, list(network.parameters()))
    with torch_threads(3):
        threads.clear()
        with ShardedLoss(loss, list(network.parameters()), n_rows=903, divide=True) as sharded:  # type: ignore[arg-type]
            assert sharded.n_shards == 3
            gradients, metrics = sharded.gradients(samples)
            again, _ = sharded.gradients(samples)
        assert threads == {1} and torch.get_num_threads() == 3
    for ours, wanted, repeated in zip(gradients, expected, again):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)
        assert torch.equal(ours, repeated)
    torch.testing.assert_close(metrics, expected_metrics, rtol=1e-5, atol=1e-6)


def test_small_minibatches_and_losses_that_are_no_means_are_not_divided() -> None:
    with torch_threads(2):
        for n_rows, divide in ((300, True), (9000, False)):
            with ShardedLoss(lambda part: (part["x"].sum(), {}), [], n_rows=n_rows, divide=divide) as sharded:
                assert sharded.n_shards == 1 and torch.get_num_threads() == 2
