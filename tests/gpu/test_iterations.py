"""Iterations on a GPU: without a wait, by CUDA graphs, and equal to those of a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from marlnb.algorithms.captured import WARM_UP_CALLS, CUDAGraph
from marlnb.algorithms.rollout import Rollout
from marlnb.experiment import Experiment
from marlnb.training.loop import Loop
from tests.training.test_on_device import ENVS, ON_POLICY, learners_of

DEVICE = "cuda"
CASES = [
    *((algorithm, "spread", "mlp") for algorithm in ON_POLICY),
    *((algorithm, "two groups", "mlp") for algorithm in ("ippo", "maa2c")),
    ("mappo", "spread", "gru"),
    ("a2c", "continuous", "mlp"),
    ("mappo", "dying", "mlp"),
    ("ippo", "finishing", "mlp"),
    ("a2c", "tag", "mlp"),
    ("mappo", "matrix", "mlp"),
]


def loop_of(algorithm: str, env: str, model: str, *overrides: str, device: str = DEVICE) -> Loop:
    experiment = Experiment.compose(
        *ENVS[env], f"algorithm={algorithm}", f"model={model}", "model.hidden=[8]", "n_envs=4", "rollout_steps=8",
        "algorithm.sequence_length=4", "algorithm.minibatch_frames=16", "frames=1", "tuned=false",
        f"device={device}", *overrides,
    )  # fmt: skip
    loop = Loop(experiment, experiment.env.build(4, device), torch.device(device))
    loop.begin(0)
    return loop


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("algorithm", "env", "model"), CASES)
def test_nothing_waits_for_the_gpu(algorithm: str, env: str, model: str) -> None:
    loop = loop_of(algorithm, env, model)
    loop.advance()
    with waiting_is_an_error():
        rollout = loop._collector.collect()
        for learner in learners_of(loop).values():
            learner.learn(rollout)


def test_torchs_mode_sees_a_wait() -> None:
    with pytest.raises(RuntimeError, match="synchroniz"), waiting_is_an_error():
        torch.ones((), device=DEVICE).item()


@pytest.mark.parametrize(("algorithm", "env", "model"), CASES)
def test_graphs_equal_eager(algorithm: str, env: str, model: str) -> None:
    annealed = "algorithm.lr_final=0.0001", "algorithm.anneal_frames=500"
    captured, eager = (loop_of(algorithm, env, model, f"cuda_graphs={value}", *annealed) for value in ("true", "false"))
    for _ in range(WARM_UP_CALLS + 4):
        ours, theirs = captured.advance().learning, eager.advance().learning
        for group in theirs:
            assert ours[group] == pytest.approx(theirs[group], rel=1e-3, abs=1e-5)
    assert captured._captured is not None and captured._captured.is_captured
    for name, learner in learners_of(captured).items():
        assert learner._captured is not None and learner._captured.is_captured
        for weight, expected in zip(learner.policy.parameters(), eager.learners[name].policy.parameters(), strict=True):
            torch.testing.assert_close(weight, expected, rtol=1e-3, atol=1e-5)


def test_a_failed_capture_leaves_the_stream_as_it_was() -> None:
    stream, value = torch.cuda.current_stream(), torch.ones((), device=DEVICE)
    with pytest.raises(RuntimeError):
        CUDAGraph(torch.device(DEVICE), []).capture(value.item)
    assert torch.cuda.current_stream() == stream and float(value + 1) == 2


def test_a_restored_training_is_captured_again() -> None:
    whole, resumed = (loop_of("ippo", "spread", "mlp", "cuda_graphs=true", f"seed={seed}") for seed in (0, 5))
    for loop in (whole, resumed):
        for _ in range(WARM_UP_CALLS + 2):
            loop.advance()
    state = whole.state_dict()
    expected = [whole.advance().learning for _ in range(WARM_UP_CALLS + 2)]
    resumed.load_state_dict(state, WARM_UP_CALLS + 2)
    for theirs in expected:
        assert resumed.advance().learning["agent"] == pytest.approx(theirs["agent"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(("algorithm", "env", "model"), [case for case in CASES if case[1] != "tag"])
def test_learning_equals_a_cpus(algorithm: str, env: str, model: str) -> None:
    """One minibatch for each epoch, since the order of samples is drawn by each device's own generator."""
    whole = "algorithm.minibatch_frames=1000"
    on_gpu, on_cpu = loop_of(algorithm, env, model, whole), loop_of(algorithm, env, model, whole, device="cpu")
    for name, learner in on_cpu.learners.items():
        on_gpu.learners[name].policy.load_state_dict(learner.policy.state_dict())
    rollout = on_cpu._collector.collect()
    moved = Rollout(_moved(rollout._fields), tuple(rollout.batch_size))
    for name, learner in on_cpu.learners.items():
        ours, theirs = on_gpu.learners[name].update(moved), learner.update(rollout)
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
        for weight, expected in zip(on_gpu.learners[name].policy.parameters(), learner.policy.parameters()):
            torch.testing.assert_close(weight.cpu(), expected, rtol=1e-3, atol=1e-4)


def _moved(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _moved(value) if isinstance(value, dict) else value.clone().to(DEVICE) for name, value in fields.items()
    }


def test_bfloat16_trains() -> None:
    loop = loop_of("mappo", "spread", "mlp", "cuda_graphs=true", "model.precision=bfloat16")
    for _ in range(WARM_UP_CALLS + 2):
        learning = loop.advance().learning["agent"]
    exact = loop_of("mappo", "spread", "mlp", "cuda_graphs=true")
    for _ in range(WARM_UP_CALLS + 2):
        expected = exact.advance().learning["agent"]
    assert learning["entropy"] == pytest.approx(expected["entropy"], rel=0.05) and learning != expected
