"""MADDPG and its family learn together what each training run would by itself."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from marlnb.algorithms.configs.ddpg import IDDPGConfig
from marlnb.algorithms.stacked.stacked_ddpg import StackedDDPG
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.together.joinable import check_builds_joinable
from marlnb.training.together.train_together import train_together
from marlnb.training.train import train
from tests.algorithms.solo import CONTINUOUS, solo_learner
from tests.training.together.trainings import assert_equal, interrupted, together

SMALL = (
    *("algorithm=maddpg", "model.hidden=[16,16]", "n_envs=4", "rollout_steps=10", "threads=1", "algorithm.updates=2"),
    *("algorithm.batch_size=16", "algorithm.learning_starts=0", "algorithm.buffer_frames=200", "checkpoint_every=4"),
    "evaluation_episodes=4",
)
SPREAD = ("env=mpe/simple_spread", "env.continuous_actions=true")
LISTENER = ("env=mpe/simple_speaker_listener", "env.continuous_actions=false")
IN_PROCESSES = ("env=pettingzoo/simple_speaker_listener", "env.workers=1")  # two act while the third one steps
LESS_NOISE = ("algorithm.noise_kind=ornstein_uhlenbeck", "algorithm.noise_final=0.01", "algorithm.noise_frames=200")
TOLERANCE = 1e-6


def compose(*words: str, env: tuple[str, ...] = SPREAD, seeds: int = 2, frames: int = 240) -> list[Experiment]:
    return [Experiment.compose(*env, *SMALL, *words, f"frames={frames}", f"seed={seed}") for seed in range(seeds)]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="maddpg"),
        pytest.param(("algorithm.policy_actions=all", "critic.layer_norm=true"), id="all actions"),
        pytest.param(("algorithm=matd3", "env.continuous_actions=false", "algorithm.updates=3"), id="matd3"),
        pytest.param(("algorithm.n_steps=3",), id="several steps"),
        pytest.param(("algorithm=iddpg", "model.share_parameters=false"), id="unshared"),
        pytest.param(LISTENER, id="two groups"),
        pytest.param(("algorithm.noise_kind=ornstein_uhlenbeck", "algorithm.target_every=2"), id="correlated noise"),
        pytest.param(("algorithm.batch_size=600", "algorithm.buffer_frames=600"), id="large minibatches"),
    ],
)
def test_one_iteration_together_equals_one_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    experiments = compose(*words, frames=40)
    for seed, run in enumerate(together(tmp_path / "together", experiments)):
        alone = train(experiments[seed], tmp_path / f"alone_{seed}", progress=False)
        assert_equal(run, alone, TOLERANCE)
        ours, theirs = run.metrics().iloc[0], alone.metrics().iloc[0]
        for name in theirs.index[theirs.index.str.startswith(("learning/", "episodes"))]:
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4, rel=1e-4), name


def test_each_has_its_own_numbers(tmp_path: Path) -> None:
    base, _ = compose(frames=40)
    options = (
        {"lr": 1e-3, "gamma": 0.9, "max_grad_norm": 0.1, "noise": 0.5},
        {"lr": 3e-4, "lr_critic": 2e-3, "tau": 0.1, "batch_size": 24, "buffer_frames": 300},
    )
    experiments = [
        replace(base, seed=seed, algorithm=replace(base.algorithm, **changes)) for seed, changes in enumerate(options)
    ]
    for k, run in enumerate(together(tmp_path / "together", experiments)):
        assert_equal(run, train(experiments[k], tmp_path / str(k), progress=False), TOLERANCE)


@pytest.mark.parametrize(
    ("words", "env", "seeds"), [(LESS_NOISE, SPREAD, 2), ((), IN_PROCESSES, 3)], ids=["less noise", "in processes"]
)
def test_a_resume_gives_the_same_bits(tmp_path: Path, words: tuple[str, ...], env: tuple[str, ...], seeds: int) -> None:
    words = (*words, "algorithm.learning_starts=60")  # the first iteration teaches nothing
    experiments = compose(*words, env=env, seeds=seeds)
    whole = together(tmp_path / "whole", experiments)
    runs = interrupted(tmp_path, experiments, iterations=5)  # 4 are saved, 1 is lost
    assert train_together(runs) == {}
    for run, other in zip(runs, whole):
        assert run.checkpoint().iteration == 6
        assert_equal(run, other, 0)


def test_noise_that_changes_or_is_loaded_is_that_of_the_next_step() -> None:
    """The stacked policy reads the noise of all training runs from one tensor, of which each one's own is a view."""
    config = IDDPGConfig(noise=0.4, noise_final=0.1, noise_frames=200, learning_starts=0)
    learners = [solo_learner(config, CONTINUOUS) for _ in range(2)]
    saved = copy.deepcopy(learners[1].state_dict())  # with the noise of the beginning
    together, alone = ([torch.Generator().manual_seed(seed) for seed in range(2)] for _ in range(2))
    stacked = StackedDDPG(learners).policy(together, slice(None))
    observation = torch.randn(8, 1, 3)
    for frames in (0, 100, 200):
        for learner in learners:
            learner.frames = frames
            learner.explore()
        if frames == 200:
            learners[1].load_state_dict(saved)
        action = stacked.act(observation).action
        for part, learner, generator, of_one in zip(observation.chunk(2), learners, alone, action.chunk(2)):
            torch.testing.assert_close(of_one, learner.policy.act(part, generator=generator).action)
    assert [round(float(learner.policy.noise), 4) for learner in learners] == [0.1, 0.4]


@pytest.mark.parametrize(("workers", "seeds"), [(0, 2), (1, 3)])
def test_environments_in_processes_step_side_by_side(tmp_path: Path, workers: int, seeds: int) -> None:
    env = ("env=pettingzoo/simple_speaker_listener", f"env.workers={workers}")
    experiments = compose("checkpoint_every=3", env=env, seeds=seeds, frames=200)  # they are reset at a checkpoint
    for seed, run in enumerate(together(tmp_path / "together", experiments)):
        here = replace(experiments[seed], env=replace(experiments[seed].env, workers=0))  # of equal numbers, sooner
        alone = train(here, tmp_path / f"alone_{seed}", progress=False)
        ours, theirs = run.metrics(), alone.metrics()
        assert ours["episodes"].tolist() == theirs["episodes"].tolist()
        assert ours["episodes"].sum() == 4
        assert ours["recent_return"].tolist()[-1] == pytest.approx(theirs["recent_return"].tolist()[-1], rel=1e-3)


def test_a_critic_that_reads_another_kind_of_learner_says_so() -> None:
    (mixed,) = compose("algorithms.speaker=ippo", "algorithms.listener=maddpg", env=LISTENER, seeds=1)
    with pytest.raises(
        ConfigError, match=r"the critic of group 'listener' reads the actions of 'speaker', .* PPOLearner"
    ):
        check_builds_joinable(mixed)
