"""The benchmark of batched environments compares like with like."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu
from benchmarks.drivers.on_gpu import TAG
from benchmarks.products import epoch_products, rollout_products
from marlnb.algorithms.on_policy import OnPolicyLearner
from marlnb.config import ENVIRONMENTS
from marlnb.envs.by_hand import vector_env
from marlnb.experiment import Experiment
from marlnb.training.learners import build_learners


def test_both_sides_play_the_same_game() -> None:
    config = ENVIRONMENTS.get("tag/continuous")()
    for settings in TAG.values():
        assert {name: getattr(config, name) for name in settings.options} == pytest.approx(settings.options)


def test_the_bound_counts_the_products_of_a_training() -> None:
    """torch counts the operations of a learner's gradient and networks; by hand: 102,016 and 40,064 for a row."""
    n_samples = 12
    env = vector_env("tag/continuous", 2)
    experiment = Experiment.compose(
        "env=tag/continuous", "algorithm=ippo", "model.hidden=[64,64]", "n_envs=2", "frames=100"
    )
    runner = build_learners(experiment, env.spec)["runner"]
    assert isinstance(runner, OnPolicyLearner)
    numbers = {name: torch.randn(n_samples, 100) for name in ("log_prob", "advantage", "target")}
    observation = torch.randn(n_samples, 100, gpu.N_FEATURES)
    stored = torch.randint(21, (n_samples, 100, 2))
    with FlopCounterMode(display=False) as learning:
        loss, _ = runner.loss({"observation": observation, "stored": stored, **numbers})
        torch.autograd.grad(loss, runner.optimizers["optimizer"].all_parameters)
    with FlopCounterMode(display=False) as acting, torch.no_grad():
        runner.policy.actor(observation)
        runner.policy.critic(observation)
    sizes = replace(gpu.product_sizes(64, 2, "cpu"), rollout_rows=n_samples * 100, minibatch_rows=n_samples * 100)
    for products, counted, by_hand in ((epoch_products, learning, 102_016), (rollout_products, acting, 40_064)):
        with FlopCounterMode(display=False) as bound:
            for product in products(sizes, "cpu"):
                product()
        assert bound.get_total_flops() == counted.get_total_flops() == by_hand * n_samples * 100
