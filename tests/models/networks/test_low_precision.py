"""Networks in bfloat16: what is computed in which dtype, that they learn, and what recordings say of them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.hooks.capture import capture
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.fast.linear import MIN_ROWS
from marlnb.models.networks.layers import fast_training
from marlnb.models.networks.low_precision import full_precision
from marlnb.specs import InputSpec
from marlnb.training.learners import build_learners


def experiment(*overrides: str) -> Experiment:
    return Experiment.compose(
        *("env=probe/match", "algorithm=ippo", "model.hidden=[16]", "model.precision=bfloat16", "n_envs=32"),
        *("rollout_steps=8", "tuned=false", "algorithm.lr=0.01", "algorithm.minibatch_frames=64", "frames=10_240"),
        "algorithm.sequence_length=4",
        *overrides,
    )


@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_units_are_bfloat16_and_everything_around_is_float32(model: str) -> None:
    planned = experiment(f"model={model}")
    env = planned.env.build(4)
    policy = build_learners(planned, env.spec)["agent"].policy
    assert all(weight.dtype == torch.float32 for weight in policy.parameters())
    observation = env.reset(0).groups["agent"].observation
    with capture(policy, "agent/actor/hidden_1") as activations:
        output = policy.act(observation, recurrent=policy.initial_recurrent(4, "cpu"))
    assert activations["agent/actor/hidden_1"].dtype == torch.bfloat16
    assert output.logits.dtype == output.log_prob.dtype == torch.float32
    assert output.recurrent is None or output.recurrent.dtype == torch.float32
    plain = build_learners(experiment(f"model={model}", "model.precision=float32"), env.spec)["agent"].policy
    plain.load_state_dict({name.replace("inner.", ""): value for name, value in policy.state_dict().items()})
    expected = plain.act(observation, recurrent=plain.initial_recurrent(4, "cpu")).logits
    error = (output.logits - expected).abs().max()
    assert 0 < error < 0.01


def test_gradients_of_many_rows_are_those_of_float32_up_to_the_precision() -> None:
    """Above the number of rows from which an update computes its products by `fast_linear`, which is for float32."""
    x = torch.randn(MIN_ROWS, 1, 6)
    gradients = []
    for precision in ("bfloat16", "float32"):
        torch.manual_seed(0)
        network = MLPConfig(hidden=(16,), precision=precision).build(1, InputSpec(((6,),)), 2)  # type: ignore[arg-type]
        with fast_training(network), patch("torch.get_num_threads", return_value=2):
            gradients.append(torch.autograd.grad(network(x)[0].square().mean(), list(network.parameters())))
    for low, full in zip(*gradients, strict=True):
        assert 0 < (low - full).abs().max() < 0.05 * full.abs().max()


def test_an_update_computes_the_network_that_acts() -> None:
    """Also where its hidden units are small, so that 2 sigmoid(2 x) - 1 in bfloat16 is far from tanh(x)."""
    x = 0.01 * torch.randn(64, 1, 6)
    network = MLPConfig(hidden=(16, 16), precision="bfloat16").build(1, InputSpec(((6,),)), 2)
    with fast_training(network):
        output = network(x)[0]
    expected = network(x)[0]
    assert (output - expected).abs().max() <= 0.02 * expected.abs().max()


def test_full_precision_is_float32s_to_the_bit_and_ends_with_its_block() -> None:
    x, networks = torch.randn(8, 1, 6), []
    for precision in ("bfloat16", "float32"):
        torch.manual_seed(0)
        networks.append(MLPConfig(hidden=(16,), precision=precision).build(1, InputSpec(((6,),)), 2))  # type: ignore[arg-type]
    low, full = networks
    with full_precision(torch.nn.ModuleList([low])):
        assert torch.equal(low(x)[0], full(x)[0])
    assert not torch.equal(low(x)[0], full(x)[0])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN's switch is for x86 processors")
def test_a_training_says_that_its_processor_is_slow_with_bfloat16(tmp_path: Path) -> None:
    """On a processor whose instructions for bfloat16 oneDNN may not use, as AVX2's has none."""
    words = ("env=probe/match", "algorithm=ippo", "n_envs=4", "rollout_steps=8", "frames=32", "tuned=false")
    for precision, is_noted in (("bfloat16", True), ("float32", False)):
        command = [sys.executable, "-m", "marlnb", "train", *words, f"model.precision={precision}"]
        environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
        ended = subprocess.run(
            [*command, f"run={tmp_path / precision}"], env=environment, capture_output=True, text=True, check=True
        )
        notices = [line for line in ended.stderr.splitlines() if "times as long for a product in bfloat16" in line]
        assert len(notices) == is_noted


def test_a_sequence_has_one_precision() -> None:
    models = "model.models=[{name: mlp, precision: bfloat16},mlp]"
    with pytest.raises(ConfigError, match=r"models\[0\] has precision=bfloat16; set precision on the sequence"):
        Experiment.compose("env=probe/match", "algorithm=ippo", "model=sequence", models)


def test_it_learns_and_recordings_say_its_dtype(tmp_path: Path) -> None:
    run = mnb.train(experiment("algorithm.epochs=4"), tmp_path / "run", progress=False)
    assert run.metrics()["recent_return"].iloc[-1] > 0.8  # 1 is the best, 0 is chance
    with mnb.record(run, episodes=4, sites="*", progress=False) as recording:
        activations = recording.file["activations/agent/actor/hidden_1"]
        assert activations.attrs["computed"] == "bfloat16" and activations.dtype == np.float32
        values = torch.from_numpy(activations[:])
        assert torch.equal(values, values.bfloat16().float())
    usual = mnb.train(experiment("model.precision=float32", "frames=256"), tmp_path / "usual", progress=False)
    with mnb.record(usual, episodes=4, progress=False) as recording:
        assert recording.file["activations/agent/actor/hidden_1"].attrs["computed"] == "float32"
