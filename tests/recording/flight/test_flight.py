"""Recording the envs of a training run while it learns, and any other env afterwards, proved by its hash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.data.labels import resolve_label
from marlnb.analysis.data.rows import RowSource
from marlnb.errors import ConfigError, RecordingError, RunError, SiteError
from marlnb.experiment import Experiment
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.flight.hashes import HashFile
from marlnb.specs import derive_seed
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.forked import run_forked
from tests.recording.runs import LivesConfig

N_ENVS, N_STEPS, N_ITERATIONS = 4, 10, 5


def experiment(*overrides: str, max_cycles: int = 5) -> Experiment:
    return Experiment.compose(
        *("env=mpe/simple_speaker_listener", f"env.max_cycles={max_cycles}", "algorithm=mappo", "model=mlp"),
        *("model.hidden=[6]", f"n_envs={N_ENVS}", f"rollout_steps={N_STEPS}", "seed=3", "checkpoint_every=2"),
        *(f"frames={N_ITERATIONS * N_ENVS * N_STEPS}", "keep_checkpoints=0", "tuned=false", "evaluation_episodes=1"),
        *overrides,
    )


def train(path: Path, planned: Experiment, *callbacks: Any) -> Run:
    return mnb.train(planned, path, progress=False, callbacks=callbacks)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Recorded in envs 0 and 2, and with another callback in all."""
    callbacks = mnb.FlightRecorder(every_envs=2, sites="*"), mnb.FlightRecorder(every_envs=1, sites="*", name="all")
    return train(tmp_path_factory.mktemp("flight") / "run", experiment(), *callbacks)


@pytest.fixture
def flight(run: Run) -> Iterator[Recording]:
    with Recording.open(run.recordings["flight"]) as recording:
        yield recording


def test_training_is_the_same_with_and_without(run: Run, tmp_path: Path) -> None:
    without = train(tmp_path / "run", experiment())
    ours, theirs = (item.policies()["listener"].state_dict() for item in (run, without))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_every_step_of_the_chosen_envs_is_there(run: Run, flight: Recording) -> None:
    assert flight.complete and len(flight) == 2 * N_ITERATIONS * N_STEPS
    assert set(flight.rows["env_id"]) == {0, 2} and flight.episodes["finished"].all()
    assert flight.rows["t"].tolist() == [*range(5)] * 20
    first = derive_seed(3, "env", 0)
    by_env = {env: flight.episodes["seed"][flight.rows.groupby("episode")["env_id"].first() == env] for env in (0, 2)}
    for env, seeds in by_env.items():
        assert seeds.tolist() == [first + env + k * N_ENVS for k in range(10)]
    assert flight.episodes["checkpoint"].tolist() == [i for i in range(N_ITERATIONS) for _ in range(4)]
    sha256 = dict(zip(flight.checkpoints["iteration"], flight.checkpoints["sha256"]))
    assert sha256[2] == run.checkpoint(2).sha256 and len(set(sha256.values())) == N_ITERATIONS


def test_rows_equal_those_of_the_episode_played_again(run: Run, flight: Recording) -> None:
    """From its seed and checkpoint, with its actions, by the code of ordinary recordings."""
    for episode in flight.episodes.index[flight.episodes["checkpoint"] == 2]:
        again = mnb.replay(flight, episode)
        assert len(again.compared) >= 20 and again.largest < 1e-5, again


@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_it_equals_an_ordinary_recording_of_the_same_seeds(tmp_path: Path, model: str) -> None:
    """Without exploration the training's actions are the greedy ones of its checkpoint."""
    greedy = ("algorithm=vdn", "algorithm.epsilon_start=0", "algorithm.epsilon_end=0", "algorithm.learning_starts=0")
    planned = experiment(f"model={model}", *greedy, "algorithm.updates=2", "algorithm.sequence_length=5")
    run = train(tmp_path / "run", planned, mnb.FlightRecorder(every_envs=2, sites="*/actor/*", values=False))
    seed = derive_seed(3, "env", 0) + 4 * N_ENVS  # of the fifth episode: after iteration 2
    ordinary = mnb.record(
        run, checkpoint=2, episodes=2 * N_ENVS, n_envs=N_ENVS, seed=seed, values=False, progress=False
    )
    with ordinary, Recording.open(run.recordings["flight"]) as flight:
        paths = {path for path in row_paths(ordinary.file) if not path.startswith("labels/")}
        assert paths == set(row_paths(flight.file))
        for episode, entry in flight.episodes[flight.episodes["checkpoint"] == 2].iterrows():
            (other,) = ordinary.episodes.index[ordinary.episodes["seed"] == entry["seed"]]
            ours, theirs = (
                (flight.rows["episode"] == episode).to_numpy(),
                (ordinary.rows["episode"] == other).to_numpy(),
            )
            for path in paths - {"steps/episode", "steps/listener/log_prob", "steps/speaker/log_prob"}:
                np.testing.assert_allclose(
                    flight.file[path][ours], ordinary.file[path][theirs], atol=1e-5, err_msg=path
                )


def test_recording_functions_take_it(flight: Recording, tmp_path: Path) -> None:
    attribution = mnb.attribute(flight, group="listener", to="action", checkpoint=2, n_steps=5)
    assert np.isfinite(attribution.values).all()
    site = "listener/actor/hidden_1"
    assert mnb.decode(flight, site=site, label=lambda item: item.rows["t"].to_numpy() > 2, checkpoint=2, folds=2)
    assert not mnb.to_pandas(flight).empty
    with mnb.extract(flight, tmp_path / "part.h5", episodes=[3, 4]) as part:
        assert len(part) == 10
    without_checkpoint = int(flight.episodes.index[flight.episodes["checkpoint"] == 1][0])
    assert len(mnb.animate(flight, without_checkpoint, max_width=60)) == 6  # plays the recorded actions


def test_any_env_can_be_played_again(run: Run) -> None:
    """Env 3 in iterations 4 and 5, from the checkpoint of iteration 2: what the training saw, bit for bit."""
    with (
        mnb.replay_training(run, 4, [3], iterations=2, sites="*") as again,
        Recording.open(run.recordings["all"]) as everything,
    ):
        rows = (everything.rows["env_id"] == 3).to_numpy() & np.isin(
            everything.episodes["checkpoint"].reindex(everything.rows["episode"]), [3, 4]
        )
        assert rows.sum() == len(again) == 2 * N_STEPS and again.episodes["finished"].all()
        paths = set(row_paths(everything.file))
        assert {path for path in row_paths(again.file) if path not in paths} == {f"labels/{x}" for x in again.labels}
        goal = again.steps("speaker", "observation").to_numpy()[:, 0]
        assert np.array_equal(goal.argmax(1), again.label("goal").to_numpy()) and again.classes("goal")
        for path in paths:
            ours, theirs = again.file[path][:], everything.file[path][rows]
            if path.startswith("activations/") or path.endswith(("/logits", "/value")):  # of other numbers of rows
                np.testing.assert_allclose(ours, theirs, atol=1e-6, err_msg=path)
            elif path != "steps/episode":
                assert np.array_equal(ours, theirs), path
        assert again.episodes["checkpoint"].tolist() == [3, 3, 4, 4]
        assert again.checkpoints["sha256"].iloc[-1] == run.checkpoint(4).sha256
        scope = mnb.microscope(again, episode=0)
        assert scope is not None


def test_a_replay_that_differs_says_where(run: Run, tmp_path: Path) -> None:
    hashes = HashFile(run.path / "recordings" / "flight.hashes", N_ENVS)
    before = hashes.path.read_bytes()
    values = hashes.read()
    try:
        hashes.cut(2)
        values[3][1] ^= 1
        hashes.append(3, values[3])
        with pytest.raises(RecordingError, match=r"iteration 3 .*in 1 of 4 envs, first in env 1"):
            mnb.replay_training(run, 3, [0], name="differs")
        with pytest.raises(RecordingError, match=r"no hashes of iteration 4.*verify=False"):
            mnb.replay_training(run, 4, [0], name="differs")
        hashes.append(4, values[4])
        with pytest.raises(SiteError, match="actr"):  # before iteration 3 is trained again
            mnb.replay_training(run, 4, [0], name="differs", sites="*/actr/*")
        with mnb.replay_training(run, 4, [0], name="unproved", verify=False) as again:
            assert len(again) == N_STEPS
    finally:
        hashes.path.write_bytes(before)
    assert not (run.path / "recordings" / "differs.h5").exists()


class Stop:
    def begin(self, trainer: Trainer) -> None: ...

    def after_iteration(self, trainer: Trainer) -> None:
        if trainer.iteration == 3:
            trainer.ask_to_stop()

    def end(self, trainer: Trainer) -> None: ...


def test_a_replay_over_a_stop_names_the_environment_that_was_reset(tmp_path: Path) -> None:
    planned = replace(experiment("algorithm=ippo", "checkpoint_every=4"), env=LivesConfig())
    run = train(tmp_path / "run", planned, mnb.FlightRecorder(every_envs=4), Stop())
    mnb.resume(run, progress=False, callbacks=[mnb.FlightRecorder(every_envs=4)])
    shutil.rmtree(run.path / "checkpoints" / "3")  # as later checkpoints of a long training run remove it
    with pytest.raises(RecordingError, match=r"4 differs .* training was resumed, which reset this environment"):
        mnb.replay_training(run, 4, [0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((6, [0]), "iterations 1 to 5; got 6 to 6"), ((2, [4]), "envs 0 to 3"), ((2, []), "envs 0 to 3")],
)
def test_what_was_not_trained_cannot_be_played(run: Run, arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mnb.replay_training(run, *arguments)


def test_how_far_a_run_was_trained_is_known_without_its_status(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "status.json").write_text("")  # as a lost node leaves it
    with pytest.raises(ConfigError, match="has iterations 1 to 5; got 9 to 9"):
        mnb.replay_training(tmp_path / "run", 9, [0])
    with pytest.raises(RunError, match="new has not been trained yet"):
        mnb.replay_training(Run.create(tmp_path / "new", experiment()), 1, [0])


def test_a_cpu_cannot_repeat_a_training_on_a_gpu(run: Run) -> None:
    moved = Run.open(run.path)
    moved.experiment = replace(moved.experiment, device="cuda")
    with pytest.raises(RunError, match=r"trained on cuda.*FlightRecorder"):
        mnb.replay_training(moved, 1, [0])


def test_episodes_longer_than_a_rollout(tmp_path: Path) -> None:
    """Each row has the weights that played it, and what has not ended is marked; a replay may begin within one."""
    run = train(tmp_path / "run", experiment(max_cycles=25), mnb.FlightRecorder(every_envs=4))
    with Recording.open(run.recordings["flight"]) as flight:
        assert flight.episodes["finished"].tolist() == [True, True]
        assert flight.rows["t"].tolist() == [*range(25)] * 2
        iterations = [flight.checkpoints.query("row_start <= @row < row_stop")["iteration"].item() for row in range(50)]
        assert iterations == [i for i in range(5) for _ in range(10)]
        for iteration in range(5):
            of_iteration = flight["listener/actor/hidden_1"].sel(checkpoint=iteration)
            assert of_iteration.rows.tolist() == list(range(10 * iteration, 10 * iteration + 10))
        assert flight["listener/actor/hidden_1"].sel(checkpoint=1, episode=0, t=[12]).rows.tolist() == [12]
        with pytest.raises(RecordingError, match=r"no rows of checkpoint \[5\].*valid: \[0, 1, 2, 3, 4\]"):
            flight["listener/actor/hidden_1"].sel(checkpoint=5)
        with pytest.raises(RecordingError, match=r"checkpoints 2, 3, 4; .*\(run, 3, \[0\], iterations=3\)"):
            mnb.replay(flight, 1)
        with mnb.replay_training(run, 2, [0], iterations=2) as part:
            assert part.rows["t"].tolist() == [*range(10, 25), *range(5)]
            assert part.episodes["finished"].tolist() == [False, False]
            assert part.episodes["n_steps"].tolist() == [25, 5]
            assert part.episodes["seed"].tolist() == flight.episodes["seed"].tolist()
            site = "listener/actor/hidden_1"
            np.testing.assert_allclose(part[site].to_numpy(), flight[site].to_numpy()[10:30], atol=1e-6)
            of_part, of_whole = (
                resolve_label(source, source.rows(None), "return_to_go")
                for source in (RowSource(recording, "listener") for recording in (part, flight))
            )
            np.testing.assert_allclose(of_part.values[:15], of_whole.values[10:25], rtol=1e-5)
            assert of_part.known[:, 0].tolist() == [True] * 15 + [False] * 5 and of_whole.known.all()


def test_tools_take_episodes_older_than_the_recording(tmp_path: Path) -> None:
    run = train(tmp_path / "run", experiment(max_cycles=25), mnb.FlightRecorder(every_envs=4))
    with mnb.replay_training(run, 3, [0], iterations=2) as part:
        assert part.rows["t"].tolist() == [*range(20, 25), *range(15)]
        with pytest.raises(RecordingError, match=r"episode 0 cannot be played again, .* recorded step is t=20"):
            mnb.animate(part, episode=0)
        with mnb.extract(part, tmp_path / "eighth.h5", every=8) as eighth:  # episode 0 has t = 24
            assert eighth.rows["t"].tolist() == [24, 0, 8] and eighth.episodes["length"].tolist() == [1, 2]
        with mnb.extract(part, tmp_path / "thirteenth.h5", every=13) as rest:  # and none of 0, 13, 26
            assert rest.rows["t"].tolist() == [0, 13] and rest.episodes.index.tolist() == [1]
            assert rest.settings["episodes"] == 1
        with mnb.extract(part, tmp_path / "killed.h5", episodes=[0]) as killed:
            assert killed.rows["t"].tolist() == [*range(20, 25)]
        with pytest.raises(RecordingError, match="no rows at every=13"):
            mnb.extract(part, tmp_path / "none.h5", episodes=[0], every=13)
    before = part.path.read_bytes()
    assert not mnb.repair(part.path).changed and part.path.read_bytes() == before
    assert not mnb.repair(tmp_path / "eighth.h5").changed
    with h5py.File(tmp_path / "killed.h5", "r+") as file:  # in the middle of the episode: it has no entry yet
        for column in file["episodes"].values():
            column.resize(0, axis=0)
    assert not mnb.repair(tmp_path / "killed.h5").changed


KILLED = """
import os, sys
from pathlib import Path
import torch
import marlnb as mnb
from marlnb.recording.file import layout
from tests.recording.flight.test_flight import experiment
torch.set_num_threads(1)
layout.MAX_BLOCK_ROWS = 16

class Kill:
    def begin(self, trainer): pass
    def end(self, trainer): pass
    def after_iteration(self, trainer):
        if trainer.iteration == 4:
            flight._flight._buffers.close()
            flight._flight._thread.join()
            os._exit(9)

flight = mnb.FlightRecorder(every_envs=4)
mnb.train(experiment(), Path(sys.argv[1]), progress=False, callbacks=[flight, Kill()])
"""


def test_the_seed_of_the_episode_that_a_kill_interrupted_is_unknown(tmp_path: Path) -> None:
    assert run_forked(KILLED, tmp_path / "run") == 9
    with Recording.open(tmp_path / "run" / "recordings" / "flight.h5") as flight:  # 32 rows: two blocks of 16
        first = derive_seed(3, "env", 0)
        assert flight.episodes["finished"].tolist() == [True] * 6 + [False]
        assert flight.episodes["seed"].tolist() == [first + k * N_ENVS for k in range(6)] + [-1]


def test_a_resumed_training_continues_in_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "run", experiment())
    trainer = Trainer(run.experiment, run, [mnb.FlightRecorder(every_envs=2)])
    for _ in range(3):
        next(trainer)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):  # iteration 3 is not saved
        patch.setattr("marlnb.training.loop.Loop.advance", lambda loop: 1 / 0)
        next(trainer)
    mnb.resume(run, progress=False, callbacks=[mnb.FlightRecorder(every_envs=2)])
    assert sorted(HashFile(run.path / "recordings" / "flight.hashes", N_ENVS).read()) == [1, 2, 3, 4, 5]
    with Recording.open(run.recordings["flight"]) as first, Recording.open(run.recordings["flight-2"]) as rest:
        assert not first.complete and rest.complete
        assert (len(first), len(rest)) == (2 * 3 * N_STEPS, 2 * 3 * N_STEPS)
        assert rest.episodes["checkpoint"].unique().tolist() == [2, 3, 4]
    for iteration in (4, 5):
        os.truncate(run.checkpoint(iteration).path / "tensors.bin", 9)
    more = 6 * N_ENVS * N_STEPS
    mnb.resume(run, frames=more, progress=False, callbacks=[mnb.FlightRecorder(every_envs=2)])  # from iteration 2 again
    with Recording.open(run.recordings["flight-2"]) as rest, Recording.open(run.recordings["flight-2-2"]) as again:
        assert again.complete and len(again) == len(rest) + 2 * N_STEPS


def test_a_writer_that_fails_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise RecordingError("the disk is full")

    monkeypatch.setattr("marlnb.recording.flight.recorder.RecordingWriter.append", full)
    with pytest.raises(RecordingError, match="the disk is full"):
        train(tmp_path / "run", experiment(), mnb.FlightRecorder(every_envs=2))


def test_what_cannot_be_recorded_is_an_error_before_the_start(tmp_path: Path) -> None:
    recurrent = experiment("model=gru", "algorithm.sequence_length=5")
    with pytest.raises(RecordingError, match=r"speaker/critic/.*the critic is recurrent"):
        train(tmp_path / "critic", recurrent, mnb.FlightRecorder(sites="*"))
    league = Experiment.compose(
        "league=self_play", "env=pettingzoo/tictactoe", "algorithm=ippo", "n_envs=2", "rollout_steps=8", "frames=16"
    )
    with pytest.raises(RecordingError, match="leagues and populations"):
        train(tmp_path / "league", league, mnb.FlightRecorder())
    with pytest.raises(RecordingError, match="with a schedule="):
        train(tmp_path / "schedule", experiment("schedule=['8 algorithm.lr=1e-4']"), mnb.FlightRecorder())
    with pytest.raises(ConfigError, match="every_envs"):
        mnb.FlightRecorder(every_envs=0)
