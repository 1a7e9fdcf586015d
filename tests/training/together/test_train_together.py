"""Training runs that advance together learn what each would by itself, and stay ordinary runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.control import request
from marlnb.training.loop import DivergedError
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Run
from marlnb.training.together.joinable import check_builds_joinable, check_joinable
from marlnb.training.together.joined import JoinedTrainings
from marlnb.training.together.train_together import train_together
from marlnb.training.train import train
from marlnb.training.trainer import Trainer
from tests.training.together.trainings import assert_equal, interrupted, together
from tests.training.toys import CountConfig

SMALL = (
    *("env=mpe/simple_spread", "algorithm=ippo", "model.hidden=[16,16]", "n_envs=4", "rollout_steps=10", "threads=1"),
    *("algorithm.epochs=2", "algorithm.minibatch_frames=20", "checkpoint_every=4", "evaluation_episodes=4"),
)
TOLERANCE = 1e-6


def compose(*words: str, seeds: int = 3) -> list[Experiment]:
    return [Experiment.compose(*SMALL, "frames=240", *words, f"seed={seed}") for seed in range(seeds)]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="ippo"),
        pytest.param(("algorithm=mappo", "model.layer_norm=true", "algorithm.value_clip=0.2"), id="mappo"),
        pytest.param(("algorithm=mappo", "model.share_parameters=false"), id="unshared"),
        pytest.param(("env.continuous_actions=true", "algorithm.max_grad_norm=0"), id="continuous"),
        pytest.param(("env=mpe/simple_speaker_listener", "algorithm=mappo"), id="two groups"),
        pytest.param(("env=matrix/two_step",), id="a game"),
        pytest.param(("algorithm.minibatch_frames=1000000", "n_envs=64"), id="large minibatches"),
    ],
)
def test_one_update_together_equals_one_update_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    experiments = [replace(each, frames=each.iteration_frames) for each in compose(*words, seeds=2)]
    runs = together(tmp_path / "together", experiments)
    for seed, (run, experiment) in enumerate(zip(runs, experiments)):
        alone = train(experiment, tmp_path / f"alone_{seed}", progress=False)
        assert_equal(run, alone, TOLERANCE)
        ours, theirs = run.metrics().iloc[0], alone.metrics().iloc[0]
        for name in theirs.index[theirs.index.str.startswith(("learning/", "episodes"))]:
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4, rel=1e-4), name
        assert run.status()["scores"]["greedy"] == pytest.approx(alone.status()["scores"]["greedy"], abs=1e-3)


def test_a_group_that_does_not_act_for_a_rollout_learns_as_alone(tmp_path: Path) -> None:
    """An episode's first two steps are without b_0, and its length depends on the seed."""
    env = (f"env={CountConfig.name}", "env.mortal=true")
    words = (*env, "n_envs=1", "rollout_steps=2", "frames=12", "checkpoint_every=100")
    experiments = compose(*words)
    runs = together(tmp_path / "together", experiments)
    epochs = [run.metrics()["learning/b/epochs"].tolist() for run in runs]
    assert any(len({of_run[update] for of_run in epochs}) == 2 for update in range(6)), epochs
    for seed, (run, experiment) in enumerate(zip(runs, experiments)):
        assert_equal(run, train(experiment, tmp_path / f"alone_{seed}", progress=False), TOLERANCE)


def test_each_has_its_own_rates(tmp_path: Path) -> None:
    base, _ = compose(seeds=2)
    options = (
        {"lr": 1e-3, "clip": 0.1, "entropy_coef": 0.02, "gamma": 0.9, "max_grad_norm": 0.1},
        {"lr": 3e-4, "clip": 0.3, "entropy_coef": 0.0, "gae_lambda": 0.8, "lr_critic": 2e-3},
    )
    experiments = [
        replace(base, frames=base.iteration_frames, seed=seed, algorithm=replace(base.algorithm, **changes))
        for seed, changes in enumerate(options)
    ]
    for k, run in enumerate(together(tmp_path / "together", experiments)):
        assert_equal(run, train(experiments[k], tmp_path / str(k), progress=False), TOLERANCE)


def test_trainings_of_other_shapes_share_the_batch_of_environments(tmp_path: Path) -> None:
    words = ("frames=40", "checkpoint_every=1")
    pair, wide = compose(*words, seeds=2), compose(*words, "model.hidden=[24]", "algorithm=mappo", seeds=1)
    *runs, alone = together(tmp_path / "together", [*pair, *wide])
    assert_equal(alone, train(wide[0], tmp_path / "wide", progress=False), TOLERANCE)
    for run, experiment in zip(runs, pair):
        assert_equal(run, train(experiment, tmp_path / f"alone_{experiment.seed}", progress=False), TOLERANCE)


def test_a_resume_gives_the_same_bits_together_and_one_continues_alone(tmp_path: Path) -> None:
    experiments = compose()
    whole = together(tmp_path / "whole", experiments)
    runs = interrupted(tmp_path, experiments, iterations=5)  # 4 are saved, 1 is lost
    assert [run.checkpoint().iteration for run in runs] == [4, 4, 4]
    assert train_together(runs) == {}
    for run, other in zip(runs, whole):
        assert_equal(run, other, 0)
        assert run.metrics()["iteration"].tolist() == list(range(1, 7))
    longer = replace(whole[0].experiment, frames=320)
    alone = Run.create(tmp_path / "longer", longer)
    assert train_together([alone]) == {} and alone.checkpoint().iteration == 8


def test_trainings_at_different_times_of_an_episode_advance_together(tmp_path: Path) -> None:
    experiments = compose(seeds=2)
    runs = [Run.create(tmp_path / str(k), each) for k, each in enumerate(experiments)]
    ahead = Trainer(experiments[0], runs[0])
    for _ in range(3):
        next(ahead)
    ahead.close()
    assert train_together(runs) == {}
    for run, experiment in zip(runs, experiments):
        alone = train(experiment, tmp_path / f"alone_{experiment.seed}", progress=False)
        rows, others = run.metrics(), alone.metrics()
        assert rows["episodes"].tolist() == others["episodes"].tolist()
        assert rows["recent_return"].tolist()[-1] == pytest.approx(others["recent_return"].tolist()[-1], abs=0.2)
        assert torch.equal(run.checkpoint().load()["env"]["episode"], alone.checkpoint().load()["env"]["episode"])


def test_one_that_diverges_or_stops_leaves_and_the_others_continue(tmp_path: Path) -> None:
    experiments = compose("frames=400")
    runs = [Run.create(tmp_path / str(k), each) for k, each in enumerate(experiments)]
    joined = JoinedTrainings()
    trainers = [Trainer(run.experiment, run, build=joined.build_loop) for run in runs]
    for trainer in trainers:
        next(trainer)
    with torch.no_grad():
        next(trainers[1].loop.policies["agent"].parameters()).fill_(torch.nan)
    ends = []
    while ready := [trainer for trainer in trainers if trainer.state == "running" and trainer.continues()]:
        for trainer in ready:
            try:
                report = trainer.iterate()
            except DivergedError:
                ends.append(f"{trainer.run.path.name} diverged")
                continue
            if report.iteration == 4 and trainer is trainers[2]:
                request(trainer.run.path, "stop")
    assert ends == ["1 diverged"]
    assert [run.status()["state"] for run in runs] == ["complete", "failed", "stopped"]
    assert [run.status()["iteration"] for run in runs] == [10, 1, 4]
    alone = train(experiments[0], tmp_path / "alone", progress=False)
    assert runs[0].status()["scores"]["greedy"] == pytest.approx(alone.status()["scores"]["greedy"], abs=1e-2)


def test_one_that_cannot_be_opened_fails_and_the_others_continue(tmp_path: Path) -> None:
    runs = [Run.create(tmp_path / str(k), each) for k, each in enumerate(compose("frames=80"))]
    damaged, locked, whole = runs
    (damaged.path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration\n{"iteration": 3}\n')
    lock = RunLock(locked.path / "lock")
    failed = train_together(runs)
    lock.release()
    assert whole.status()["state"] == "complete" and failed.keys() == {damaged, locked}
    assert "line 2, is damaged" in str(failed[damaged]) and "delete this line" in str(failed[damaged])
    assert "being trained already" in str(failed[locked])
    (damaged.path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 3}\n')
    assert not train_together([damaged, locked])


def test_what_cannot_advance_together_says_what_can() -> None:
    for words, message in (
        (
            ("algorithms.agent=qmix",),
            "do not support algorithm=qmix; they support ippo, mappo, iddpg, maddpg and matd3",
        ),
        (("model=gru", "rollout_steps=16"), "a network of kind gru, not mlp"),
        (("model.precision=bfloat16",), "do not support precision=bfloat16"),
        (("compile=first",), "compile=first"),
        (("cuda_graphs=true",), "cuda_graphs=true"),
        (("loggers=[wandb]",), "loggers=wandb, which has one run in each process"),
        (("evolution=pbt",), "an evolving population"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_joinable(compose(*words, seeds=2))
    with pytest.raises(ConfigError, match=r"take turns; training runs in one batch .* in processes"):
        check_builds_joinable(compose("env=pettingzoo/tictactoe", seeds=1)[0])
    with pytest.raises(ConfigError, match=r"algorithm.target_kl=0.1 ends each update at another time"):
        check_builds_joinable(compose("algorithm.target_kl=0.1", seeds=1)[0])
