"""The worked example of an algorithm: the penalty is what it says, and it learns as IPPO does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.ppo import MinibatchOutput, ppo_loss
from marlnb.config import ALGORITHMS, ENVIRONMENTS, LearnerContext
from marlnb.models.networks.configs.mlp import MLPConfig
from tests.algorithms.conftest import two_groups
from tests.algorithms.test_known_answers import started, wrong
from tests.models.conftest import DISCRETE


@pytest.fixture(scope="module")
def kind() -> Iterator[type[Any]]:
    """The example's config; forgotten afterwards, so that other tests do not see it."""
    from tests.examples.ippo_kl import IPPOKLConfig

    ALGORITHMS.register("examples/ippo_kl")(IPPOKLConfig)
    yield IPPOKLConfig
    ALGORITHMS._members.pop("examples/ippo_kl")


def test_the_penalty_by_hand(kind: type[Any]) -> None:
    """Ratios 2 and 1/2: r - 1 - log r is 1 - log 2 and -1/2 + log 2, on average 1/4."""
    minibatch = {"log_prob": torch.zeros(2), "advantage": torch.ones(2), "target": torch.zeros(2)}
    output = MinibatchOutput(torch.tensor([2.0, 0.5]).log(), torch.zeros(2), torch.zeros(2))
    env, model = two_groups(DISCRETE), MLPConfig(hidden=(4,))
    context = LearnerContext(env.groups[0], env, model, model)
    with_penalty, _ = kind(kl_coef=3.0).build(context).policy_gradient_loss(output, minibatch)
    without, metrics = ppo_loss(IPPOConfig(), output, minibatch)
    assert float(metrics["kl"]) == pytest.approx(0.25)
    assert float(with_penalty - without) == pytest.approx(3 * 0.25)


def test_it_finds_the_known_answers(kind: type[Any]) -> None:
    game: Any = ENVIRONMENTS.get("probe/action")()
    algorithm = kind(
        kl_coef=0.1, lr=1e-2, epochs=4, minibatch_frames=128, gamma=0.9, gae_lambda=0.9, normalise_values=False
    )
    loop = started(game, algorithm)
    for _ in range(30):
        loop.advance()
    assert wrong(loop, game, algorithm, 0.9) == []
