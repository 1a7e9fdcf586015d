"""The loop of learners that remember: when it learns, what it averages, how targets follow, what is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from marlnb.algorithms.configs.off_policy import OffPolicyConfig
from marlnb.algorithms.configs.value_decomposition import IQLConfig
from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.value_decomposition import QLearner
from marlnb.config import LearnerContext
from marlnb.errors import CheckpointError, ConfigError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.q_policy import QPolicy
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.algorithms.conftest import random_rollout, two_groups
from tests.models.conftest import DISCRETE

MODEL = MLPConfig(hidden=(4,))
ENV = two_groups(DISCRETE)
GROUP = ENV.group("walker")


class Counting(OffPolicyLearner):
    """Learns nothing; its weights go up by one each step, and every second step measures something more."""

    def __init__(self, config: OffPolicyConfig) -> None:
        policy = QPolicy(GROUP, MODEL)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.zero_()
        self.sizes: list[torch.Size] = []
        parts = {"actor": policy.actor}
        super().__init__(config, policy, ENV, trained={"q": parts}, followed=parts, reads=("walker", "other"))

    def learn(self, sample: Sample) -> dict[str, Tensor]:
        with torch.no_grad():
            for parameter in self.policy.parameters():
                parameter += 1
        self.sizes.append(sample["other", "action"].shape)
        self.update_targets()
        step = torch.tensor(float(self.steps))
        return {"step": step} | ({"odd": step} if self.steps % 2 else {})

    @property
    def slow(self) -> float:
        return float(next(self.targets.parameters()).flatten()[0])


def rollout(steps: int = 20) -> TensorDict:
    torch.manual_seed(0)
    policies = {"walker": QPolicy(GROUP, MODEL), "other": QPolicy(ENV.group("other"), MODEL)}
    return random_rollout(ENV, policies, steps=steps)


def test_nothing_is_learned_until_enough_frames_were_seen() -> None:
    learner = Counting(IQLConfig(learning_starts=160, updates=4, batch_size=32))
    assert learner.warming_up and learner.update(rollout()) == {"updates": 0.0, "replay_frames": 80.0}
    actual = learner.update(rollout())
    assert actual == {"step": 1.5, "odd": 2.0, "updates": 4.0, "replay_frames": 160.0}
    assert (learner.frames, learner.steps) == (160, 4) and learner.sizes == [torch.Size([32, 1])] * 4


def test_targets_follow_by_a_share_of_the_way() -> None:
    """From 0 after the weights became 1, 2, 3: 0.25, then 0.25 + (2 - 0.25) / 4 = 0.6875, then 1.265625."""
    learner = Counting(IQLConfig(learning_starts=0, updates=3, tau=0.25))
    learner.update(rollout())
    assert learner.slow == 1.265625


def test_targets_are_copied_every_so_many_steps() -> None:
    learner = Counting(IQLConfig(learning_starts=0, updates=1, target_every=3))
    actual = []
    for _ in range(7):
        learner.update(rollout())
        actual.append(learner.slow)
    assert actual == [0, 0, 3, 3, 3, 6, 6]


def test_targets_never_take_a_gradient_and_are_copies() -> None:
    learner = Counting(IQLConfig())
    own = {parameter.data_ptr() for parameter in learner.policy.parameters()}
    for parameter in learner.targets.parameters():
        assert not parameter.requires_grad and parameter.data_ptr() not in own


def test_a_saved_state_continues() -> None:
    config = IQLConfig(learning_starts=0, updates=2, batch_size=16)
    first, second = (config.build(LearnerContext(GROUP, ENV, MODEL, MODEL, 4, 20)) for _ in range(2))
    assert isinstance(first, QLearner)
    first.update(rollout())
    second.load_state_dict(first.state_dict())
    assert first.update(rollout()) == second.update(rollout())
    assert (first.steps, first.frames) == (second.steps, second.frames) == (4, 160)
    for ours, theirs in zip(first.targets.parameters(), second.targets.parameters()):
        assert torch.equal(ours, theirs)
    other = config.build(LearnerContext(GROUP, ENV, MLPConfig(hidden=(5,)), MODEL, 4, 20))
    with pytest.raises(CheckpointError, match="do not fit the networks of 'walker'"):
        other.load_state_dict(first.state_dict())


def test_without_the_replay_memory_checkpoints_are_small_and_training_refills_it(tmp_path: Path) -> None:
    fixed = ("env=mpe/simple_spread", "algorithm=iql", "algorithm.learning_starts=0", "algorithm.updates=1")
    sizes = ("n_envs=4", "rollout_steps=16", "checkpoint_every=2", "model.hidden=[8]")
    held = {}
    for save in ("true", "false"):
        experiment = Experiment.compose(*fixed, *sizes, f"algorithm.save_replay={save}")
        run = Run.create(tmp_path / save, experiment)
        with Trainer(experiment, run) as trainer:
            next(trainer), next(trainer)
        assert run.policies().keys() == {"agent"}
        with Trainer.resume(Run.open(run.path)) as trainer:
            held[save] = next(trainer).learning["agent"]["replay_frames"]
    assert held == {"true": 192.0, "false": 64.0}


def test_a_memory_or_minibatch_that_is_too_small_says_so() -> None:
    def build(model: MLPConfig, **options: int) -> None:
        IQLConfig(**options).build(LearnerContext(GROUP, ENV, model, model, 4, 20))  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="buffer_frames=79 is smaller than one rollout; at least 80"):
        build(MODEL, buffer_frames=79)
    with pytest.raises(ConfigError, match="at least 128"):
        build(GRUConfig(), buffer_frames=100, sequence_length=32)
    with pytest.raises(ConfigError, match="batch_size=8 is smaller than one sequence of 16 steps"):
        build(GRUConfig(), batch_size=8)
