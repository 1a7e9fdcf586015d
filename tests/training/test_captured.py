"""Captured iterations equal those that Python executes, on a CPU: a fake graph repeats a call's operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from marlnb.algorithms.captured import WARM_UP_CALLS, Captured
from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.experiment import Experiment
from marlnb.training.loop import Loop
from tests.training.fake_graph import FakeGraph
from tests.training.test_on_device import loop_of

N_ITERATIONS = WARM_UP_CALLS + 4
EPOCHS = "algorithm.epochs=2"


def train(loop: Loop, n: int) -> list[dict[str, Any]]:
    return [loop.advance().learning for _ in range(n)]


CASES = [
    ("mappo", "spread", "mlp", [EPOCHS, "env.terminate_on_success=true"]),
    ("maa2c", "spread", "gru", ["env.terminate_on_success=true"]),
    ("a2c", "continuous", "mlp", ["algorithm.lr_final=0.0001", "algorithm.anneal_frames=500"]),
    ("ippo", "tag", "mlp", [EPOCHS]),
    ("mappo", "dying", "gru", [EPOCHS]),
    ("ippo", "matrix", "mlp", [EPOCHS]),
]


@pytest.mark.parametrize(("algorithm", "env", "model", "overrides"), CASES)
def test_captured_equals_eager(algorithm: str, env: str, model: str, overrides: list[str]) -> None:
    captured, eager = (loop_of(algorithm, env, model, *overrides, by_mask=True) for _ in range(2))
    captured.capture(FakeGraph)
    assert captured._captured is not None
    for ours, theirs in zip(train(captured, N_ITERATIONS), train(eager, N_ITERATIONS), strict=True):
        for group in theirs:
            assert ours[group] == pytest.approx(theirs[group], rel=1e-4, abs=1e-6)
    assert captured._captured.is_captured
    for name, learner in captured.learners.items():
        other = eager.learners[name]
        assert learner._captured.is_captured and learner.frames == other.frames  # type: ignore[attr-defined]
        assert learner.optimizers["optimizer"].state_dict()["steps"] == other.optimizers["optimizer"].steps
        for weight, expected in zip(learner.policy.parameters(), other.policy.parameters(), strict=True):
            torch.testing.assert_close(weight, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("algorithm", "env", "model", "overrides"), CASES)
def test_a_graph_uses_no_memory_that_is_freed(algorithm: str, env: str, model: str, overrides: list[str]) -> None:
    """Else it overwrites what is stored there next: a saved state, in a training run of MPE on a GPU."""
    graphs: list[FakeGraph] = []

    def new_graph(generators: Sequence[torch.Generator]) -> FakeGraph:
        graphs.append(FakeGraph(generators))
        return graphs[-1]

    loop = loop_of(algorithm, env, model, *overrides, by_mask=True)
    loop.capture(new_graph)
    train(loop, WARM_UP_CALLS + 2)
    if env in ("spread", "continuous", "tag"):
        loop.env.render()
    assert len(graphs) == 1 + len(loop.learners) and [graph.freed() for graph in graphs] == [[]] * len(graphs)


def test_after_a_restore_it_is_captured_again() -> None:
    """A graph holds the seed of the reset; a restored training continues as one that was not interrupted."""
    whole = loop_of("ippo", "spread", "mlp", EPOCHS, by_mask=True)
    resumed = loop_of("ippo", "spread", "mlp", EPOCHS, "seed=5", by_mask=True)
    for loop in (whole, resumed):
        loop.capture(FakeGraph)
        train(loop, N_ITERATIONS)
    state = whole.state_dict()
    expected = train(whole, N_ITERATIONS)
    resumed.load_state_dict(state, N_ITERATIONS)
    for ours, theirs in zip(train(resumed, N_ITERATIONS), expected, strict=True):
        assert ours["agent"] == pytest.approx(theirs["agent"], rel=1e-4, abs=1e-6)


def test_the_fake_graph_finds_what_a_graph_would_get_wrong() -> None:
    total = torch.zeros(2)

    class Stale:
        """Keeps the last result in Python: a graph reads where it was at the capture."""

        last = torch.zeros(2)

        def __call__(self) -> torch.Tensor:
            total.add_(self.last)
            self.last = self.last + 1
            return self.last

    stale = Captured("stale", Stale(), lambda: FakeGraph([]))
    results = [float(stale()[0]) for _ in range(WARM_UP_CALLS + 3)]
    assert results[:4] == [1, 2, 3, 4] and results[4:] != [5, 6]


def test_what_cannot_be_captured_gives_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    value = torch.ones(())

    def branches() -> torch.Tensor:
        value.add_(1)
        return value * 2 if value > 3 else value

    captured = Captured("branching", branches, lambda: FakeGraph([]))
    assert [float(captured()) for _ in range(6)] == [2, 3, 8, 10, 12, 14] and captured.failed
    error = capfd.readouterr().err
    assert error.count("branching is not captured") == 1 and "decides by a tensor's value" in error


def test_a_capture_that_fails_leaves_the_recurrent_states_as_they_were() -> None:
    captured, eager = (loop_of("ippo", "spread", "gru", EPOCHS, by_mask=True) for _ in range(2))
    captured.capture(FakeGraph)
    rules, n_steps = captured.env.rules, 0  # type: ignore[attr-defined]
    step = rules.step

    def waits(before: Any, actions: Any, draws: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        if n_steps % 8 == 5:
            before["rows"].sum().item()
        return step(before, actions, draws)

    rules.step = waits
    for ours, theirs in zip(train(captured, N_ITERATIONS), train(eager, N_ITERATIONS), strict=True):
        assert ours["agent"] == pytest.approx(theirs["agent"], rel=1e-4, abs=1e-6)
    assert captured._captured is not None and captured._captured.failed


@pytest.mark.parametrize(
    ("overrides", "messages"),
    [
        (["algorithm=iql", "env=mpe/simple_spread"], ["collecting is not", "the update of 'agent' is not"]),
        (["algorithm=ippo", "env=tree/biased_rps"], ["tree/biased_rps does not restart", "turn-based"]),
    ],
)
def test_a_training_says_what_it_cannot_capture(
    overrides: list[str], messages: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    experiment = Experiment.compose(*overrides, "frames=1", "n_envs=2", "rollout_steps=4", "tuned=false")
    loop = Loop(experiment, experiment.env.build(2), torch.device("cpu"))
    loop.capture(FakeGraph)
    error = capfd.readouterr().err
    assert all(message in error for message in messages)


def test_without_a_gpu_the_option_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment.compose("env=matrix/two_step", "algorithm=ippo", "cuda_graphs=true", "frames=1", "n_envs=2")
    loop = Loop(experiment, experiment.env.build(2), torch.device("cpu"))
    loop.begin(0)
    loop.advance()
    assert (
        "collecting is not captured as a CUDA graph; the training continues without one: cpu" in capfd.readouterr().err
    )


def test_target_kl_falls_back(capfd: pytest.CaptureFixture[str]) -> None:
    captured, eager = (loop_of("ippo", "matrix", "mlp", "algorithm.target_kl=0.00001", by_mask=True) for _ in range(2))
    captured.capture(FakeGraph)
    for ours, theirs in zip(train(captured, N_ITERATIONS), train(eager, N_ITERATIONS), strict=True):
        assert ours["agent"] == pytest.approx(theirs["agent"], rel=1e-4, abs=1e-6)
    assert "the update of 'agent' is not captured" in capfd.readouterr().err


def test_adam_that_counts_in_a_tensor_takes_the_same_steps() -> None:
    modules = [torch.nn.Linear(3, 2) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    usual, capturable = (PartAdam({"actor": module}, 1e-5) for module in modules)
    capturable.make_capturable()
    for rate in (0.1, 0.01, 0.001):
        for module, optimizer, lr in ((modules[0], usual, rate), (modules[1], capturable, torch.tensor(rate))):
            loss = module(torch.ones(4, 3)).square().sum()
            optimizer.apply(torch.autograd.grad(loss, optimizer.all_parameters), {"actor": lr}, 0.5)
    for ours, theirs in zip(modules[1].parameters(), modules[0].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert capturable.state_dict()["steps"] == usual.steps == 3
