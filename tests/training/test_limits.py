"""Training runs end at iterations, minutes and agent steps as they do at frames, also over several sessions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from marlnb.cli import main
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.limits import Trained, expected_frames, reached_limit
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer
from tests.training.toys import count_experiment

EXPERIMENT = count_experiment("frames=640")  # 20 iterations of 32 frames; three agents


def test_the_limit_that_is_reached_first_counts() -> None:
    experiment = replace(EXPERIMENT, max_iterations=10, max_minutes=2.0, max_agent_steps=600)
    assert reached_limit(experiment, Trained(9, 288, 119.0, 599)) == ""
    assert reached_limit(experiment, Trained(10, 320, 100.0, 590)) == "max_iterations=10"
    assert reached_limit(experiment, Trained(5, 160, 120.0, 300)) == "max_minutes=2.0"
    assert reached_limit(experiment, Trained(5, 160, 100.0, 600)) == "max_agent_steps=600"
    assert reached_limit(EXPERIMENT, Trained(20, 640, 0.0, 0)) == "frames=640"


def test_the_expected_end_follows_from_rate_and_agents() -> None:
    assert expected_frames(EXPERIMENT, Trained(), 0.0) == 640
    assert expected_frames(replace(EXPERIMENT, max_iterations=10), Trained(), 5.0) == 320
    evaluated = Trained(5, 200, 20.0, 480)  # 160 frames of a population's training, and 40 of its evaluations
    assert expected_frames(replace(EXPERIMENT, max_iterations=10), evaluated, 5.0) == 400
    minutes = replace(EXPERIMENT, max_minutes=1.0)  # 20 of 60 s are gone; 40 s at 8 frames a second remain
    assert expected_frames(minutes, Trained(5, 160, 20.0, 480), 8.0) == 160 + 320
    steps = replace(EXPERIMENT, max_agent_steps=960)  # at three agents
    assert expected_frames(steps, Trained(5, 160, 20.0, 480), 8.0) == 320


def test_limits_are_validated_together() -> None:
    with pytest.raises(ConfigError, match=r"max_iterations=21 takes 672 frames.*give frames=672 or more"):
        replace(EXPERIMENT, max_iterations=21)
    with pytest.raises(ConfigError, match="max_minutes must be more than 0"):
        replace(EXPERIMENT, max_minutes=0.0)


def test_agent_steps_that_cannot_be_reached_are_an_error(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, max_agent_steps=1921)
    with pytest.raises(ConfigError, match="at most 1,920 steps of its 3 agents"):
        train(experiment, tmp_path / "r", progress=False)
    assert not (tmp_path / "r").exists()


def test_agent_steps_that_end_before_learning_starts_are_an_error(tmp_path: Path) -> None:
    words = "env=mpe/simple_spread", "tuned=false", "n_envs=4", "rollout_steps=8", "frames=200_000"
    experiment = Experiment.compose(*words, "algorithm=iql", "algorithm.learning_starts=1025", "max_agent_steps=3000")
    with pytest.raises(ConfigError, match=r"this training run has 1,024 \(max_agent_steps=3000, if all agents act"):
        train(experiment, tmp_path / "r", progress=False)
    assert not (tmp_path / "r").exists()


def test_iterations_end_a_training_with_its_last_evaluation(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, max_iterations=3, evaluate_every=2, evaluation_episodes=2)
    run = train(experiment, tmp_path / "r", progress=False)
    assert run.status()["state"] == "complete" and run.status()["frames"] == 96 == run.status()["frames_total"]
    assert [row["iteration"] for row in run.evaluations()] == [2, 3]
    assert "max_iterations=3 reached" in "\n".join(run.events())
    assert train(experiment, tmp_path / "r", resume=True, progress=False).status()["frames"] == 96


@pytest.mark.parametrize("mortal", [False, True])
def test_agent_steps_are_counted_where_agents_act(tmp_path: Path, mortal: bool) -> None:
    experiment = count_experiment("frames=640", f"env.mortal={str(mortal).lower()}", "max_agent_steps=300")
    run = train(experiment, tmp_path / "r", progress=False)
    rows = run.metrics()
    steps = rows["agent_steps"].tolist()
    assert steps[-1] >= 300 > steps[-2]
    per_frame = 2 if mortal else 3  # one of three agents dies when another appears
    assert steps == [32 * per_frame * k for k in range(1, len(steps) + 1)]


def test_minutes_are_counted_over_sessions(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, max_minutes=100.0)
    run = Run.create(tmp_path / "r", experiment)
    with Trainer(experiment, run) as trainer:
        next(trainer)
        trainer.seconds = 6000 - 1e-6  # as after a long training run
        trainer.save()
    with Trainer.resume(run) as trainer:
        assert len(list(trainer)) == 1 and trainer.state == "complete"
    assert "max_minutes=100.0 reached" in "\n".join(run.events())


def test_a_limited_training_that_is_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    experiment = replace(count_experiment("env.savable=true", "checkpoint_every=2"), max_agent_steps=500)
    whole = train(experiment, tmp_path / "whole", progress=False)
    run = Run.create(tmp_path / "halves", experiment)
    with Trainer(experiment, run) as trainer:
        [next(trainer) for _ in range(3)]
        trainer._saver.iteration = trainer.iteration  # as a kill would: the third iteration is lost
    halves = resume(run, progress=False)
    assert halves.metrics()["agent_steps"].tolist() == whole.metrics()["agent_steps"].tolist()
    for name, policy in halves.policies().items():
        for key, value in policy.state_dict().items():
            assert torch.equal(value, whole.policies()[name].state_dict()[key])


def test_a_limit_can_be_raised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(replace(EXPERIMENT, max_iterations=2), tmp_path / "r", progress=False)
    assert main(["resume", str(tmp_path / "r"), "--max-iterations", "3"]) == 0
    assert "96 frames" in capsys.readouterr().out
    with pytest.raises(Exception, match=r"max_iterations: 3 there, 2 here; resume\(run, max_iterations=...\) changes"):
        train(replace(EXPERIMENT, max_iterations=2), tmp_path / "r", resume=True)


def test_a_resume_that_another_limit_ends_at_once_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limited = train(replace(EXPERIMENT, max_iterations=2), tmp_path / "limited", progress=False)
    assert capsys.readouterr().err == ""
    assert resume(limited, frames=6400, progress=False).status()["iteration"] == 2
    assert (
        "was not trained further: max_iterations=2 is reached; change it with resume(run, max_"
        in capsys.readouterr().err
    )
    at_target = train(replace(EXPERIMENT, target_return=-100.0, target_group="a"), tmp_path / "target", progress=False)
    resume(at_target, frames=6400, progress=False)
    assert "was not trained further: target_return=-100.0 is reached, which stays" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"max_iterations": 1}, "max_iterations=1 is less than the 2 iterations that"),
        ({"max_agent_steps": 191}, "max_agent_steps=191 is less than the 192 agent steps that"),
        ({"max_minutes": 1e-9}, r"max_minutes=1e-09 is less than the [0-9.]+ minutes that"),
    ],
)
def test_a_limit_below_what_was_trained_is_an_error(tmp_path: Path, limit: dict[str, float], message: str) -> None:
    run = train(replace(EXPERIMENT, max_iterations=2), tmp_path / "r", progress=False)
    with pytest.raises(ConfigError, match=message):
        resume(run, **limit, progress=False)  # type: ignore[arg-type]
    assert Run.open(run.path).experiment == run.experiment


def test_a_complete_run_gets_another_limit(tmp_path: Path) -> None:
    run = train(replace(EXPERIMENT, frames=80), tmp_path / "r", progress=False)  # the third iteration ends at 96
    assert resume(run, max_minutes=90.0, progress=False).status()["frames"] == 96
    assert run.experiment.max_minutes == 90.0
