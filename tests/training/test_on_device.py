"""A training iteration of the on-policy algorithms never waits for a GPU, and what it does instead changes no result.

There is no GPU in these tests: collecting and learning run on the CPU as they would on a GPU (`by_mask`), under a mode
that fails where a value, a shape or a branch would need the device's answer.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from marlnb.algorithms.on_policy import OnPolicyLearner
from marlnb.config import ALGORITHMS
from marlnb.envs.tensor.synchronisation import SynchronisationError, no_synchronisation
from marlnb.experiment import Experiment
from marlnb.training.loop import Loop

ON_POLICY = [name for name, config in ALGORITHMS.items() if config.learns and config.on_policy]
ENVS = {
    "spread": ["env=mpe/simple_spread", "env.max_cycles=5", "env.state=true"],
    "two groups": ["env=mpe/simple_tag", "env.max_cycles=5"],
    "continuous": ["env=mpe/simple_adversary", "env.continuous_actions=true", "env.max_cycles=4"],
    "dying": ["env=probe/dying"],
    "finishing": ["env=mpe/simple_spread", "env.max_cycles=6", "env.N=1", "env.terminate_on_success=true"],
    "tag": [
        "env=tag/continuous",
        "env.num_runners=4",
        "env.num_taggers=2",
        "env.num_other_agents_observed=3",
        "env.episode_length=5",
        "env.starts=env",
    ],
    "matrix": ["env=matrix/two_step"],
}


def loop_of(algorithm: str, env: str, model: str, *overrides: str, by_mask: bool) -> Loop:
    """`by_mask`: as a GPU runs it, without asking for a value."""
    experiment = Experiment.compose(
        *ENVS[env], f"algorithm={algorithm}", f"model={model}", "model.hidden=[8]", "n_envs=4", "rollout_steps=8",
        "algorithm.sequence_length=4", "algorithm.minibatch_frames=16", "frames=1", "tuned=false", *overrides,
    )  # fmt: skip
    built = experiment.env.build(4)
    if hasattr(built, "restarts_by_mask"):
        built.restarts_by_mask = by_mask
    loop = Loop(experiment, built, torch.device("cpu"))
    loop._collector.by_mask = by_mask
    assert learners_of(loop)
    for learner in learners_of(loop).values():
        learner.by_mask = by_mask
    loop.begin(0)
    return loop


def iterations(loop: Loop, n: int, *, checked: bool) -> list[dict[str, Tensor]]:
    """Each learner's metrics; `checked`: under the mode that fails at a synchronisation."""
    torch.manual_seed(0)
    metrics = []
    for _ in range(n):
        with no_synchronisation(random=True) if checked else nullcontext():
            rollout = loop._collector.collect()
            metrics.append({name: learner.learn(rollout)[1] for name, learner in learners_of(loop).items()})
    return metrics


def learners_of(loop: Loop) -> dict[str, OnPolicyLearner]:
    return {name: learner for name, learner in loop.learners.items() if isinstance(learner, OnPolicyLearner)}


@pytest.fixture(autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # several share a minibatch on a CPU only
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("algorithm", "env", "model"),
    [
        *((algorithm, "spread", "mlp") for algorithm in ON_POLICY),
        *((algorithm, "two groups", "mlp") for algorithm in ("ippo", "maa2c")),
        ("mappo", "spread", "gru"),
        ("ippo", "spread", "gru"),
        ("a2c", "continuous", "mlp"),
        ("mappo", "dying", "mlp"),
        ("ippo", "finishing", "mlp"),
        ("a2c", "tag", "mlp"),
        *((algorithm, "matrix", "mlp") for algorithm in ON_POLICY),
    ],
)
def test_an_iteration_waits_for_nothing_and_equals_the_other_path(algorithm: str, env: str, model: str) -> None:
    on_device, usual = (loop_of(algorithm, env, model, by_mask=by_mask) for by_mask in (True, False))
    masked, expected = iterations(on_device, 2, checked=True), iterations(usual, 2, checked=False)
    for name, learner in on_device.learners.items():
        for mine, theirs in zip(masked, expected):
            torch.testing.assert_close(mine[name], theirs[name], atol=1e-4, rtol=1e-3)
        for weight, other in zip(learner.policy.parameters(), usual.learners[name].policy.parameters()):
            torch.testing.assert_close(weight, other, atol=2e-4, rtol=1e-3)


def test_the_rollouts_are_the_same_bits() -> None:
    for env in ENVS:
        masked, usual = (loop_of("ippo", env, "mlp", by_mask=by_mask)._collector for by_mask in (True, False))
        for _ in range(2):
            torch.manual_seed(1)
            mine = masked.collect().to_tensordict()
            torch.manual_seed(1)
            expected = usual.collect().to_tensordict()
            assert (mine == expected).all(), env


def test_the_mode_finds_what_the_usual_path_does() -> None:
    with pytest.raises(SynchronisationError, match=r"rollout\.py.*waits for the device"):
        iterations(loop_of("ippo", "spread", "mlp", by_mask=False), 1, checked=True)


def test_a_checkpoint_of_a_gpu_opens_on_a_cpu() -> None:
    """A GPU's generator has a state of 16 bytes, that of a CPU 5,056: another order of samples, the same weights."""
    (learner,) = loop_of("ippo", "spread", "mlp", by_mask=False).learners.values()
    state = learner.state_dict()
    learner.load_state_dict(state | {"shuffler": torch.zeros(16, dtype=torch.uint8)})
    assert torch.equal(learner.state_dict()["shuffler"], state["shuffler"])
