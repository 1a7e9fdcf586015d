from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.errors import CheckpointError, ConfigError, EnvError, RunError
from marlnb.experiment import Experiment
from marlnb.specs import derive_seed
from marlnb.training.loop import DivergedError, Loop
from marlnb.training.reporting.report import Report
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer
from tests.training.toys import Count, count_experiment

NATIVE = (
    *("env=mpe/simple_speaker_listener", "algorithm=mappo", "algorithm.epochs=2", "n_envs=4", "rollout_steps=16"),
    *("frames=1280", "threads=1", "checkpoint_every=4"),
)


def _weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    named = {f"{name}.{key}": v for name, p in trainer.policies.items() for key, v in p.state_dict().items()}
    return {key: value.clone() for key, value in named.items()}


def _assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert torch.equal(value, right[key]), key


def _train(experiment: Experiment, path: Path, iterations: int) -> tuple[list[Report], dict[str, torch.Tensor]]:
    with Trainer(experiment, Run.create(path, experiment)) as trainer:
        reports = [next(trainer) for _ in range(iterations)]
        weights = _weights(trainer)
        trainer._saver.iteration = trainer.iteration  # as a kill would: nothing is saved at the end
    return reports, weights


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((*NATIVE, "model=mlp"), id="native"),
        pytest.param((*NATIVE, "model=gru"), id="native, recurrent"),
        pytest.param(("env=toy/count", "env.mortal=true"), id="savable toy"),
        pytest.param(("env=toy/count", "env.savable=false"), id="toy that cannot be saved"),
    ],
)
def test_a_resumed_training_gives_the_same_bits(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    toy = overrides[0].startswith("env=toy")
    experiment = count_experiment("checkpoint_every=4", *overrides) if toy else Experiment.compose(*overrides)
    reports, expected = _train(experiment, tmp_path / "whole", 9)
    _train(experiment, tmp_path / "halves", 6)  # 4 are saved, 2 are lost
    torch.manual_seed(123)
    np.random.seed(5)
    run = Run.open(tmp_path / "halves")
    assert run.checkpoint().iteration == 4
    with Trainer.resume(run) as trainer:
        assert trainer.iteration == 4
        again = [next(trainer) for _ in range(5)]
        _assert_same(_weights(trainer), expected)
    assert [r.learning for r in again] == [r.learning for r in reports[4:]]
    assert [r.returns for r in again] == [r.returns for r in reports[4:]]
    assert run.metrics()["iteration"].tolist() == list(range(1, 10))


def test_the_notebooks_random_numbers_neither_matter_nor_change(tmp_path: Path) -> None:
    experiment = count_experiment()
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        results.append(_train(experiment, tmp_path / str(seed), 3)[1])
        drawn = torch.rand(()).item(), np.random.random(), random.random()
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        assert drawn == (torch.rand(()).item(), np.random.random(), random.random())
    _assert_same(*results)


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    _, zero = _train(count_experiment(), tmp_path / "0", 1)
    _, one = _train(count_experiment("seed=1"), tmp_path / "1", 1)
    assert not any(torch.equal(zero[key], one[key]) for key in zero if key.endswith("linear.weight"))


def test_reports_tell_what_happened(tmp_path: Path) -> None:
    experiment = count_experiment()
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        reports = list(trainer)
    assert [report.frames for report in reports] == list(range(32, 641, 32)) and trainer.state == "complete"
    last = reports[-1]
    assert {"policy_loss", "value_loss", "entropy", "kl", "explained_variance"} <= last.learning["a"].keys()
    assert last.stepping_s > 0 and last.acting_s > 0 and last.learning_s > 0
    split = last.stepping_s + last.acting_s + last.learning_s
    assert split <= 32 / last.frames_per_second + 1e-6
    assert sum(report.episodes for report in reports) > 0
    rows = trainer.run.metrics()
    assert rows["learning/a/entropy"].tolist() == [report.learning["a"]["entropy"] for report in reports]
    status = trainer.run.status()
    assert (status["state"], status["frames"], status["iteration"]) == ("complete", 640, 20)


def test_pausing_is_not_calling_it_and_closing_saves(tmp_path: Path) -> None:
    experiment = count_experiment("checkpoint_every=100")
    run = Run.create(tmp_path / "r", experiment)
    with Trainer(experiment, run) as trainer:
        next(trainer)
        with pytest.raises(RunError, match="being trained already"):
            Trainer(experiment, run)
        next(trainer)
        assert run.status()["state"] == "running" and not run.checkpoints
    assert run.status()["state"] == "stopped" and run.checkpoint().iteration == 2
    scores = run.status()["scores"]
    with Trainer.resume(run) as trainer:
        assert run.status()["scores"] == scores and scores["exploring"]
        assert next(trainer).iteration == 3


def test_a_resume_after_a_kill_shows_the_returns_of_players_in_its_iteration(tmp_path: Path) -> None:
    words = ("env=tree/biased_rps", "algorithm=ippo", "model.hidden=[8]", "n_envs=8", "rollout_steps=16", "threads=1")
    experiment = Experiment.compose(*words, "algorithm.epochs=1", "frames=2560", "checkpoint_every=2")
    run = Run.create(tmp_path / "r", experiment)
    trainer = Trainer(experiment, run)
    returns = [next(trainer).exploring_returns for _ in range(3)]
    trainer.fail(KeyboardInterrupt())  # saves nothing
    assert run.status()["iteration"] == 3 and returns[1] != returns[2]
    with Trainer.resume(run) as trainer:
        assert trainer.iteration == 2 and run.status()["scores"]["exploring"] == returns[1]
    assert set(returns[1]) == {"player_0", "player_1"}


def test_a_stop_file_ends_training_after_the_iteration(tmp_path: Path) -> None:
    experiment = count_experiment("checkpoint_every=100")
    run = Run.create(tmp_path / "r", experiment)
    with Trainer(experiment, run) as trainer:
        next(trainer)
        (run.path / "STOP").touch()
        assert [report.iteration for report in trainer] == []
    assert not (run.path / "STOP").exists()
    assert run.status()["state"] == "stopped" and run.checkpoint().iteration == 1
    assert any("the file STOP" in line for line in run.events())


@pytest.mark.parametrize("during", ["begin", "after_iteration", "end"])
def test_a_stop_file_at_the_end_is_not_for_the_next_session(tmp_path: Path, during: str) -> None:
    """Also one that comes while callbacks work, as a recording does."""
    experiment = count_experiment("frames=32")
    run = Run.create(tmp_path / "r", experiment)
    callback: Any = SimpleNamespace(**dict.fromkeys(("begin", "after_iteration", "end"), lambda trainer: None))
    setattr(callback, during, lambda trainer: (run.path / "STOP").touch())
    with Trainer(experiment, run, callbacks=[callback]) as trainer:
        trainer.iterate()
    assert run.status()["state"] == "complete" and not (run.path / "STOP").exists()
    assert resume(run, frames=64, progress=False).status()["state"] == "complete"


def test_a_broken_environment_fails_the_run_and_loses_nothing_saved(tmp_path: Path) -> None:
    experiment = count_experiment("env.fail_at=60", "checkpoint_every=2")
    run = Run.create(tmp_path / "r", experiment)
    closed = Count.closed
    with pytest.raises(RuntimeError, match="the toy broke"), Trainer(experiment, run) as trainer:
        list(trainer)
    assert Count.closed == closed + 1
    status = run.status()
    assert status["state"] == "failed" and status["error"] == "RuntimeError: the toy broke"
    assert any("Traceback" in line for line in run.events())
    assert run.checkpoint().iteration == 6
    with pytest.raises(RunError, match="has failed"):
        next(trainer)
    with Trainer.resume(run) as trainer:
        assert next(trainer).iteration == 7


def test_an_environment_that_cannot_be_built_frees_the_lock(tmp_path: Path) -> None:
    experiment = count_experiment("algorithms.missing=ippo")
    run = Run.create(tmp_path / "r", experiment)
    closed = Count.closed
    for _ in range(2):
        with pytest.raises(ConfigError, match="missing"):
            Trainer(experiment, run)
    assert Count.closed == closed + 2 and run.status()["state"] == "failed"


def test_a_resume_that_cannot_start_keeps_what_the_status_says(tmp_path: Path) -> None:
    experiment = count_experiment()
    run = train(experiment, tmp_path / "r", progress=False)
    before = run.status()
    (run.path / "spec.json").write_text(json.dumps({**json.loads((run.path / "spec.json").read_text()), "name": "x"}))
    opened = Run.open(run.path)
    with pytest.raises(RunError, match="has changed"):
        resume(opened, frames=1280, progress=False)
    assert opened.experiment == Run.open(run.path).experiment == experiment  # with the limits before
    assert run.status() == before and " failed while it started: RunError(" in "".join(run.events())
    with pytest.raises(ConfigError, match="less than the 640 frames"):
        resume(run, frames=320, progress=False)


def test_divergence_stops_training_and_is_never_saved(tmp_path: Path) -> None:
    experiment = count_experiment("checkpoint_every=1")
    run = Run.create(tmp_path / "r", experiment)
    with pytest.raises(DivergedError, match="loss is nan"), Trainer(experiment, run) as trainer:
        for report in trainer:
            if report.iteration == 3:
                with torch.no_grad():
                    for parameter in trainer.policies["a"].parameters():
                        parameter.fill_(torch.nan)
    assert run.status()["state"] == "failed" and run.checkpoint().iteration == 3
    assert all(torch.isfinite(p).all() for policy in run.policies().values() for p in policy.parameters())


@pytest.mark.parametrize("overrides", [(), ("algorithms.a=iql", "algorithms.a.learning_starts=640")])
def test_rewards_that_are_not_finite_are_never_learned_from_or_stored(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    experiment = count_experiment("env.nan_at=30", "checkpoint_every=1", *overrides)
    run = Run.create(tmp_path / "r", experiment)
    with (
        pytest.raises(EnvError, match="toy/count: 'a_0' got reward nan in env 0 after step 2 of the episode"),
        Trainer(experiment, run) as t,
    ):
        list(t)
    assert run.status()["state"] == "failed" and run.checkpoint().iteration == 3


def test_a_target_return_ends_training_once_a_hundred_episodes_reach_it(tmp_path: Path) -> None:
    """The return of the toy's group a does not depend on the policy: (s % 5 + 0.5) * (2 + s % 7), on average 12.5."""
    experiment = count_experiment("frames=100000", "target_return=10.0", "target_group=a")
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        reports = list(trainer)
    assert trainer.state == "complete" and reports[-1].frames < 2000
    assert sum(report.episodes for report in reports[:-1]) < 100 <= sum(report.episodes for report in reports)
    experiment = count_experiment("target_return=20.0", "target_group=b")
    with Trainer(experiment, Run.create(tmp_path / "s", experiment)) as trainer:
        assert list(trainer)[-1].frames == 640


def test_a_target_return_is_compared_with_evaluations_where_there_are_any(tmp_path: Path) -> None:
    options = ("evaluate_every=2", "evaluation_episodes=35", "target_return=10.0", "target_group=a", "frames=100000")
    experiment = count_experiment(*options)
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        reports = list(trainer)
    assert len(reports) == 2 and not reports[0].evaluation
    assert reports[1].evaluation["a"] == pytest.approx(reports[1].evaluation["b"] + 0.5 * 5)
    assert 10.0 <= trainer.run.checkpoint("best:a").returns["a"] <= 15.0


def test_a_checkpoint_has_the_return_of_its_own_evaluation_only(tmp_path: Path) -> None:
    """So that the weights that were evaluated best are the best checkpoint, and are not deleted."""
    options = ("evaluate_every=4", "checkpoint_every=2", "keep_checkpoints=0", "evaluation_episodes=5", "frames=320")
    experiment = count_experiment(*options)
    run = Run.create(tmp_path / "r", experiment)
    with Trainer(experiment, run) as trainer:
        list(zip(range(8), trainer))
    with Trainer.resume(run) as trainer:
        trainer.save()  # again, of the same weights
        list(trainer)
    assert [checkpoint.iteration for checkpoint in run.checkpoints if checkpoint.returns] == [4, 8, 10]
    assert [checkpoint.iteration for checkpoint in run.checkpoints] == [2, 4, 6, 8, 10]


def test_a_target_return_of_groups_that_are_rewarded_differently_needs_a_group(tmp_path: Path) -> None:
    experiment = count_experiment("target_return=9.0")
    with (
        Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer,
        pytest.raises(ConfigError, match=r"target_return=9 .*rewarded differently.*target_group=a or target_group=b"),
    ):
        list(trainer)
    experiment = count_experiment("target_return=9.0", "target_group=c")
    with pytest.raises(ConfigError, match="no group 'c' of toy/count"):
        Trainer(experiment, Run.create(tmp_path / "s", experiment))


def test_evaluations_keep_every_episode_once_however_often_training_is_broken_off(tmp_path: Path) -> None:
    experiment = count_experiment("evaluate_every=2", "evaluation_episodes=5", "checkpoint_every=3")
    run = Run.create(tmp_path / "r", experiment)
    trainer = Trainer(experiment, run)
    for _ in range(8):
        next(trainer)
    trainer._release()  # killed after iteration 8; the last checkpoint is of 6
    assert [row["iteration"] for row in run.evaluations()] == [2, 4, 6, 8]
    with Trainer.resume(run) as again:
        list(again)
    rows = run.evaluations()
    assert [row["iteration"] for row in rows] == list(range(2, 21, 2))
    assert [row["frames"] for row in rows] == list(range(64, 641, 64))
    seeds = derive_seed(experiment.seed, "evaluation") + np.arange(5)
    for row in rows:
        np.testing.assert_allclose(row["returns"]["b"], seeds % 5 * (2 + seeds % 7))
        np.testing.assert_allclose(row["returns"]["a"], (seeds % 5 + 0.5) * (2 + seeds % 7))


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    experiment = count_experiment()
    _train(experiment, tmp_path / "r", 3)
    _train(count_experiment("model.hidden=[7]"), tmp_path / "other", 3)
    run = Run.open(tmp_path / "r")
    tensors = run.path / "checkpoints" / "3" / "tensors.bin"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="damaged"):
        Trainer.resume(run)
    foreign = tmp_path / "other" / "checkpoints" / "3"
    (run.path / "checkpoints" / "3").rename(tmp_path / "aside")
    foreign.rename(run.path / "checkpoints" / "3")
    with pytest.raises(CheckpointError, match="'a'"):
        Trainer.resume(run)


def test_a_tensor_as_a_return_is_no_checkpoint_of_a_training(tmp_path: Path) -> None:
    """A file of a third party may have any value; found by make fuzz."""
    experiment = count_experiment()
    _train(experiment, tmp_path / "r", 3)
    run = Run.open(tmp_path / "r")
    checkpoint = run.checkpoint()
    state = checkpoint.load()
    changed = {**state, "evaluation_returns": {**state["evaluation_returns"], "a": torch.zeros(2)}}
    shutil.rmtree(checkpoint.path)
    save_checkpoint(checkpoint.path.parent, changed, iteration=3, frames=checkpoint.frames, returns={})
    with pytest.raises(CheckpointError, match="evaluation_returns must be numbers"):
        Trainer.resume(run)


def test_a_state_with_a_value_of_another_kind_does_not_fit() -> None:
    experiment = Experiment.compose(*NATIVE)
    loop = Loop(experiment, experiment.env.build(experiment.n_envs), torch.device("cpu"))
    loop.begin(0)
    state = loop.state_dict()
    with pytest.raises(CheckpointError, match="does not fit this experiment"):
        loop.load_state_dict({**state, "env": {**state["env"], "seed": 3}}, 0)
    loop.load_state_dict(state, 0)


@pytest.mark.parametrize("n_interrupts", [1, 2])
def test_an_interrupt_of_a_loop_is_raised_after_the_iteration_and_the_with_saves(
    tmp_path: Path, n_interrupts: int
) -> None:
    """A second one interrupts at once: the iteration is lost."""
    experiment = count_experiment("checkpoint_every=100")
    run = Run.create(tmp_path / "r", experiment)

    def interrupt(rollout: object) -> None:
        if trainer.iteration == 2:
            for _ in range(n_interrupts):
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Trainer(experiment, run) as trainer:
        assert isinstance(trainer.loop, Loop)
        trainer.loop.on_rollout.append(interrupt)
        list(trainer)
    assert run.status()["state"] == "stopped" and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [checkpoint.iteration for checkpoint in run.checkpoints] == ([3] if n_interrupts == 1 else [])
    with pytest.raises(RunError, match="was closed; resume"):
        next(trainer)


def test_an_interrupted_loop_can_be_continued(tmp_path: Path) -> None:
    experiment = count_experiment()

    def interrupt(rollout: object) -> None:
        if trainer.iteration == 0:
            signal.raise_signal(signal.SIGINT)

    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        assert isinstance(trainer.loop, Loop)
        trainer.loop.on_rollout.append(interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(trainer)
        assert next(trainer).iteration == 2
