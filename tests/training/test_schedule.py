"""Schedules: options of algorithms that change during a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import marlnb as mnb
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

SMALL = (
    *("env=mpe/simple_spread", "tuned=false", "model.hidden=[8]", "n_envs=2", "rollout_steps=8", "frames=96"),
    *("checkpoint_every=1", "keep_checkpoints=0", "evaluation_episodes=2"),
)
IPPO = ("algorithm=ippo", "algorithm.epochs=1", "algorithm.lr=1e-3")
OFF_POLICY = (
    *("algorithm=maddpg", "algorithm.learning_starts=16", "algorithm.updates=1", "algorithm.batch_size=16"),
    "algorithm.buffer_frames=200",
)


def _weights(run: Run) -> dict[str, torch.Tensor]:
    return run.policies()["agent"].state_dict()


def test_an_option_changes_and_the_rest_stays(tmp_path: Path) -> None:
    """Until then the training is the same as without a schedule; afterwards the steps of Adam are small."""
    experiment = Experiment.compose(*SMALL, *IPPO, "schedule=['48 algorithm.lr=1e-5']")
    run = Run.create(tmp_path / "run", experiment)
    rates = []
    with Trainer(experiment, run) as trainer:
        for _ in trainer:
            rates.append(trainer.loop.learners["agent"].config.lr)
    assert rates == [1e-3] * 3 + [1e-5] * 3
    plain = Experiment.compose(*SMALL, *IPPO)
    with Trainer(plain, Run.create(tmp_path / "plain", plain)) as trainer:
        for _ in range(3):
            next(trainer)
    at_48 = run.policies(3)["agent"].state_dict()
    for name, value in Run.open(tmp_path / "plain").policies(3)["agent"].state_dict().items():
        assert torch.equal(value, at_48[name])
    moved = [float((value - at_48[name]).abs().max()) for name, value in _weights(run).items() if "actor" in name]
    assert 0 < max(moved) < 1e-4  # three updates of Adam by at most about 1e-5 each


@pytest.mark.parametrize(
    "algorithm",
    [
        (*IPPO, "schedule=['40 algorithm.lr=1e-2','64 algorithm.epochs=3']"),
        (*OFF_POLICY, "schedule=['40 algorithm.lr=1e-2','64 algorithm.batch_size=8']"),
    ],
)
def test_a_resumed_training_follows_the_schedule_bit_for_bit(tmp_path: Path, algorithm: tuple[str, ...]) -> None:
    experiment = Experiment.compose(*SMALL, *algorithm)
    whole = mnb.train(experiment, tmp_path / "whole", progress=False)
    for stop_at in (2, 3, 5):
        run = Run.create(tmp_path / str(stop_at), experiment)
        with Trainer(experiment, run) as trainer:
            for _ in range(stop_at):
                next(trainer)
        resumed = mnb.resume(run.path, progress=False)
        for name, value in _weights(whole).items():
            assert torch.equal(value, _weights(resumed)[name]), name


def test_it_survives_a_file_and_names_what_is_wrong() -> None:
    experiment = Experiment.compose(*SMALL, *IPPO, "schedule=['1_000 algorithm.lr=1e-5','40 algorithm.clip=0.1']")
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert (experiment.at_frames(39).algorithm.clip, experiment.at_frames(40).algorithm.clip) == (0.2, 0.1)
    assert experiment.at_frames(40).schedule == ()

    def message(*overrides: Any) -> str:
        with pytest.raises(ConfigError) as raised:
            Experiment.compose(*SMALL, *IPPO, *overrides)
        return str(raised.value)

    assert "'lr=3' is not a change" in message("schedule=['lr=3']")
    assert "did you mean 'lr'" in message("schedule=['3 algorithm.lrr=3']")
    assert "lr must be" in message("schedule=['3 algorithm.lr=-3']")
    assert "group that has its own algorithm" in message("schedule=['3 algorithms.agent.lr=1e-3']")
    assert "cannot be combined with evolution=" in message("schedule=['3 algorithm.lr=1e-3']", "evolution=pbt")


def test_a_replay_buffer_stays_although_checkpoints_do_not_hold_it(tmp_path: Path) -> None:
    words = (*SMALL, *OFF_POLICY, "algorithm.save_replay=false", "schedule=['48 algorithm.lr=1e-5']")
    experiment = Experiment.compose(*words)
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        assert [report.learning["agent"]["replay_frames"] for report in trainer] == [16, 32, 48, 64, 80, 96]


def test_open_turns_stay_although_checkpoints_do_not_hold_them(tmp_path: Path) -> None:
    """Every step of the two environments is in the replay buffer or waits for its turn to end."""
    turns = "algorithm=iql", "env=probe/echo", "rollout_steps=1", "frames=12", "checkpoint_every=100"
    words = "algorithm.learning_starts=8", "algorithm.save_replay=false", "schedule=['6 algorithm.lr=1e-5']"
    experiment = Experiment.compose(*SMALL, *OFF_POLICY, *turns, *words)
    n_steps = []
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        for _ in trainer:
            (learner,) = trainer.loop.learners.values()
            waiting = learner.open_turns.steps
            n_steps.append(len(learner.replay) + (0 if waiting is None else waiting.batch_size.numel()))
    assert n_steps == [2, 4, 6, 8, 10, 12]


def test_a_fixed_temperature_follows_the_schedule(tmp_path: Path) -> None:
    words = "algorithm=isac", "algorithm.learn_temperature=false", "algorithm.temperature=0.5"
    experiment = Experiment.compose(*SMALL, *OFF_POLICY, *words, "schedule=['64 algorithm.temperature=0.01']")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        reports = [report.learning["agent"] for report in trainer]
    temperatures = [learning["temperature"] for learning in reports[1:]]
    assert temperatures == pytest.approx([0.5] * 3 + [0.01] * 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*OFF_POLICY, "schedule=['48 algorithm.buffer_frames=800']"), "buffer_frames of maddpg says what"),
        ((*OFF_POLICY, "schedule=['48 algorithm.batch_size=5000']"), "48 algorithm.batch_size=5000.*larger than"),
        (
            (*IPPO, "model=gru", "algorithm.sequence_length=4", "schedule=['48 algorithm.sequence_length=7']"),
            "48 algorithm.sequence_length=7.*divide",
        ),
        ((*OFF_POLICY, "algorithm=qmix", "schedule=['48 algorithm.mixer_units=16']"), "48 algorithm.mixer_units=16"),
        (
            (*IPPO, "schedule=['48 algorithm.initial_log_std=-2']"),
            "initial_log_std of ippo.*valid: adam_eps, .*, sequence_length, target_kl,",
        ),
        ((*OFF_POLICY, "algorithm=masac", "schedule=['48 algorithm.temperature=1']"), "temperature of masac says what"),
        (
            (*IPPO, "algorithms.agent=frozen", "schedule=['48 algorithms.agent.checkpoint=8']"),
            "checkpoint of frozen says what.*valid: none",
        ),
        (
            (*OFF_POLICY, "algorithm=iql", "env=probe/echo", "schedule=['48 algorithm.n_steps=3']"),
            "48 algorithm.n_steps=3.*wait for their turns",
        ),
        (
            (
                *(*IPPO, "env=mpe/simple_tag", "algorithms.agent=ippo", "algorithms.adversary=ippo"),
                "schedule=['48 algorithm.lr=1e-5']",
            ),
            "48 algorithm.lr=1e-05': no group learns by algorithm, .*valid: algorithms.adversary, algorithms.agent",
        ),
    ],
)
def test_a_change_that_cannot_be_made_is_an_error_before_the_training(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mnb.train(Experiment.compose(*SMALL, *words), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
