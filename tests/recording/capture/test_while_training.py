"""Recording during a training run: one file of many iterations, the same training with and without, kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.data.rows import RowSource
from marlnb.errors import ConfigError, RecordingError
from marlnb.experiment import Experiment
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from marlnb.widgets.recordings.checkpoint_usage import recordings_made_with

N_ITERATIONS = 7


def experiment(algorithm: str = "ippo", **options: Any) -> Experiment:
    quick = {"ippo": ["epochs=1", "n_minibatches=1"], "iql": ["updates=1", "learning_starts=0", "batch_size=10"]}
    return Experiment.compose(
        *("env=mpe/simple_speaker_listener", f"algorithm={algorithm}", "model=gru", "model.hidden=[6]"),
        *("model.recurrent_size=4", "n_envs=2", "rollout_steps=10", f"frames={N_ITERATIONS * 20}", "seed=3"),
        *(f"algorithm.{option}" for option in (*quick[algorithm], "sequence_length=5")),
        *("checkpoint_every=3", "keep_checkpoints=10", *(f"{key}={value}" for key, value in options.items())),
    )


def callback(**options: Any) -> mnb.RecordWhileTraining:
    return mnb.RecordWhileTraining(every_iterations=2, episodes=3, sites="*/actor/*", n_envs=2, **options)


@pytest.fixture(scope="module", params=["ippo", "iql"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The same training with a recording and without."""
    folder = tmp_path_factory.mktemp(request.param)
    with_it = mnb.train(experiment(request.param), folder / "with", progress=False, callbacks=[callback()])
    return with_it, mnb.train(experiment(request.param), folder / "without", progress=False)


def test_what_is_learned_is_the_same(trained: tuple[Run, Run]) -> None:
    with_it, without = trained
    last = [run.checkpoint("last").load() for run in (with_it, without)]
    for ours, theirs in zip(_tensors(last[0]), _tensors(last[1]), strict=True):
        assert torch.equal(ours, theirs)
    learned = [run.metrics().filter(regex="returns|learning/|recent") for run in (with_it, without)]
    assert learned[0].equals(learned[1])


def test_one_file_spans_the_iterations(trained: tuple[Run, Run]) -> None:
    run, _ = trained
    with Recording.open(run.recordings["training"]) as recording:
        assert recording.complete and recording.episodes.index.tolist() == list(range(12))
        assert recording.episodes["checkpoint"].tolist() == [0] * 3 + [2] * 3 + [4] * 3 + [6] * 3
        assert recording.episodes["seed"].tolist() == [2000, 2001, 2002] * 4
        assert recording.checkpoints["iteration"].tolist() == [0, 2, 4, 6] and recording.checkpoint[0] == 6
        sha256 = dict(zip(recording.checkpoints["iteration"], recording.checkpoints["sha256"]))
        assert sha256[6] == run.checkpoint(6).sha256 and len(set(sha256.values())) == 4
        assert recording["listener/actor/gru"].sel(checkpoint=4).shape == (75, 1, 4)
        with mnb.record(run, checkpoint=6, episodes=3, n_envs=2, name="six", progress=False) as again:
            for site in again.sites:
                assert np.array_equal(recording[site].sel(checkpoint=6), again[site].sel(episode=range(3)))


def test_a_checkpoint_saved_after_the_recording_has_its_weights(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", experiment())
    with Trainer(run.experiment, run, [callback()]) as trainer:
        next(trainer), next(trainer)
        saved = trainer.save()
    with Recording.open(run.recordings["training"]) as recording:
        assert saved.sha256 not in list(recording.checkpoints["sha256"])
        assert RowSource(recording, "listener").policies(2).keys() == {"speaker", "listener"}
        assert mnb.replay(recording, 4).exact
        assert recordings_made_with(run, saved) == ["training"]


class Killed(BaseException):
    """Acts as a kill: nothing is saved after it."""


@pytest.mark.parametrize(("trained", "killed_at"), [("ippo", 4), ("iql", 5)], indirect=["trained"])
def test_a_killed_training_continues_the_same_file(
    trained: tuple[Run, Run], tmp_path: Path, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in iteration 5 or while iteration 4 is recorded, it resumes from checkpoint 3."""
    whole, _ = trained
    run = Run.create(tmp_path / "run", whole.experiment)
    trainer = Trainer(run.experiment, run, [callback()])
    for _ in range(killed_at - 1):
        next(trainer)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        if killed_at == 4:
            patch.setattr("marlnb.recording.capture.episode_recorder.EpisodeRecorder._finish", _kill)
        else:
            patch.setattr("marlnb.training.loop.Loop.advance", _kill)
        next(trainer)
    segments = sorted(path.stem for path in (run.path / "recordings" / "training.segments").glob("*.h5"))
    assert segments == ["000000000", "000000002", "000000004"] and run.checkpoint("last").iteration == 3
    with Recording.open(run.recordings["training"]) as broken:
        assert not broken.complete
    mnb.resume(run, progress=False, callbacks=[callback()])
    with Recording.open(run.recordings["training"]) as ours, Recording.open(whole.recordings["training"]) as theirs:
        assert ours.complete and ours.episodes.equals(theirs.episodes)
        for site in theirs.sites:
            assert np.array_equal(ours[site].to_numpy(), theirs[site].to_numpy())


def _kill(*args: object) -> None:
    raise Killed


@pytest.mark.parametrize("trained", ["ippo"], indirect=True)
def test_an_iteration_whose_recording_was_prevented_is_made_from_the_checkpoint(
    trained: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = trained
    run = Run.create(tmp_path / "run", whole.experiment)
    options = {"every_iterations": 3, "episodes": 2, "sites": [], "n_envs": 1}
    trainer = Trainer(run.experiment, run, [mnb.RecordWhileTraining(**options)])  # type: ignore[arg-type]
    next(trainer), next(trainer)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("marlnb.recording.capture.while_training.prepare", _kill)
        next(trainer)
    assert run.checkpoint("last").iteration == 3
    mnb.resume(run, progress=False, callbacks=[mnb.RecordWhileTraining(**options)])  # type: ignore[arg-type]
    with Recording.open(run.recordings["training"]) as recording:
        assert recording.checkpoints["iteration"].tolist() == [0, 3, 6]


def test_a_recording_that_lacks_iterations_is_not_complete(tmp_path: Path) -> None:
    options: dict[str, Any] = {"every_iterations": 1, "episodes": 1, "sites": [], "n_envs": 1}
    planned = experiment(frames=20)
    run = mnb.train(planned, tmp_path / "run", progress=False, callbacks=[mnb.RecordWhileTraining(**options)])
    with Recording.open(run.recordings["training"]) as recording:
        assert recording.complete
    run = mnb.resume(run, frames=60, progress=False)
    run = mnb.resume(run, frames=80, progress=False, callbacks=[mnb.RecordWhileTraining(**options)])
    with Recording.open(run.recordings["training"]) as recording:
        assert recording.checkpoints["iteration"].tolist() == [0, 1, 3, 4] and not recording.complete


@pytest.mark.parametrize("trained", ["ippo"], indirect=True)
def test_other_options_are_an_error(trained: tuple[Run, Run]) -> None:
    run, _ = trained
    with pytest.raises(RecordingError, match=r"seed.*give another name"):
        mnb.resume(run, frames=N_ITERATIONS * 20 + 20, progress=False, callbacks=[callback(seed=1)])
    with pytest.raises(ConfigError, match="every_iterations must be at least 1 iteration; got 0"):
        mnb.RecordWhileTraining(every_iterations=0)


@pytest.mark.parametrize("trained", ["ippo"], indirect=True)
@pytest.mark.parametrize("segment_bytes", [None, 1])
def test_the_name_of_another_recording_is_an_error(trained: tuple[Run, Run], segment_bytes: int | None) -> None:
    _, run = trained
    name = f"segments of {segment_bytes}"
    options: dict[str, Any] = {"episodes": 4, "n_envs": 2, "sites": [], "segment_bytes": segment_bytes}
    with mnb.record(run, name=name, progress=False, **options) as recording:
        files = sorted(recording.path.parent.rglob("*.h5"))
        assert segment_bytes is None or (recording.path.with_suffix(".segments") / "0001.h5") in files
    with pytest.raises(RecordingError, match="is not of a training run; give another name"):
        mnb.resume(run, frames=N_ITERATIONS * 20 + 20, progress=False, callbacks=[callback(name=name)])
    assert sorted(recording.path.parent.rglob("*.h5")) == files


def test_networks_that_may_grow_are_an_error_before_the_training(tmp_path: Path) -> None:
    words = ("env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "n_envs=2", "rollout_steps=8")
    population = ("evolution=tournament", "evolution.population=2", "evolution.probability.width=1", "frames=200")
    growing = Experiment.compose(*words, *population, "evolution.generation_frames=16", "evaluation_episodes=1")
    with pytest.raises(RecordingError, match=r"set evolution\.probability\.width=0, record no activations"):
        mnb.train(growing, tmp_path / "sites", progress=False, callbacks=[mnb.RecordWhileTraining(episodes=1)])
    without = mnb.RecordWhileTraining(episodes=1, every_iterations=2, sites=())
    run = mnb.train(growing, tmp_path / "run", progress=False, callbacks=[without])
    assert "width" in {row.operator for row in run.population.lineage()}
    with Recording.open(run.recordings["training"]) as recording:
        assert recording.complete and len(recording.episodes) == 4


def _tensors(state: Any) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, dict):
        return [tensor for key in sorted(state) for tensor in _tensors(state[key])]
    return [tensor for item in state for tensor in _tensors(item)] if isinstance(state, (list, tuple)) else []
