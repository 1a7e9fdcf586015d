"""Recordings whose writer was killed: requested again, they are recorded again and never returned as complete."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marlnb.errors import ConfigError, RecordingError
from marlnb.models.hooks.edits import Ablate, Scale
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.journal import journal_of
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import segments_folder
from marlnb.recording.tools.replay import replay
from marlnb.training.runs.run import Run
from tests.forked import Forked
from tests.recording.runs import LivesConfig, make_run

EPISODES = 30
RECORD = """
import os, signal, sys
import torch
import tests.recording.runs
from marlnb.recording.file import layout
from marlnb.recording.capture.recorder import record
torch.set_num_threads(1)
layout.MAX_BLOCK_ROWS = 16

def look(progress):
    if progress.episodes >= 15:
        os.kill(os.getpid(), int(sys.argv[3]))

record(sys.argv[1], episodes=30, n_envs=2, seed=3, progress=False, on_step=look, segment_bytes=int(sys.argv[2]) or None)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", LivesConfig(), centralised=False)


def killed_halfway(run: Run, segment_bytes: int = 0, number: int = signal.SIGKILL) -> Forked:
    """A writer that has written about half of the recording and is then killed or stopped."""
    process = Forked(RECORD, run.path, segment_bytes, int(number))
    if number == signal.SIGKILL:
        assert process.wait() == -signal.SIGKILL
    return process


def recorded(run: Run, segment_bytes: int = 0, *, exist: str = "open", name: str = "recording") -> np.ndarray:
    with record(
        run,
        episodes=EPISODES,
        n_envs=2,
        seed=3,
        name=name,
        exist=exist,  # type: ignore[arg-type]
        segment_bytes=segment_bytes or None,
        progress=False,
    ) as recording:
        assert recording.complete and len(recording.episodes) == EPISODES
        assert recording.episodes["finished"].all()
        return recording.steps("a", "observation").to_numpy()


@pytest.mark.parametrize("in_job", [False, True])
@pytest.mark.parametrize("segment_bytes", [0, 80_000])
def test_a_recording_killed_halfway_is_recorded_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, in_job: bool, segment_bytes: int
) -> None:
    killed_halfway(run, segment_bytes)
    path = run.path / "recordings" / "recording.h5"
    with Recording.open(path, locking=None) as half:
        assert not half.complete and 0 < len(half.episodes) < EPISODES
    if in_job:
        monkeypatch.setenv("MARLNB_JOB", str(run.path))
    again = recorded(run, segment_bytes)
    monkeypatch.delenv("MARLNB_JOB", raising=False)
    expected = recorded(run, exist="error", name="undisturbed")
    np.testing.assert_array_equal(again, expected)
    set_aside = set() if in_job else {"recording.incomplete-1"}
    assert set(run.recordings) == {"recording", "undisturbed"} | set_aside
    if set_aside:
        with Recording.open(run.recordings["recording.incomplete-1"]) as half:
            assert not half.complete and len(half) > 0


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def garble(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


@pytest.mark.parametrize("damage", [empty, garble, cut])
@pytest.mark.parametrize("in_job", [False, True])
def test_a_file_that_hdf5_cannot_open_is_set_aside(
    run: Run, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], in_job: bool
) -> None:
    expected = recorded(run)
    path = run.recordings["recording"]
    damage(path)
    journal_of(path).write_bytes(b"of the writer that was killed")
    if in_job:
        monkeypatch.setenv("MARLNB_JOB", str(run.path))
    np.testing.assert_array_equal(recorded(run), expected)
    assert set(run.recordings) == {"recording"} | (set() if in_job else {"recording.incomplete-1"})
    assert not journal_of(path).exists()


@pytest.mark.parametrize("in_job", [False, True])
def test_segments_that_were_never_joined_are_set_aside(run: Run, monkeypatch: pytest.MonkeyPatch, in_job: bool) -> None:
    expected = recorded(run, 80_000)
    path = run.recordings["recording"]
    path.unlink()
    if in_job:
        monkeypatch.setenv("MARLNB_JOB", str(run.path))
    np.testing.assert_array_equal(recorded(run, 80_000), expected)
    assert segments_folder(path.with_name("recording.incomplete-1.h5")).is_dir() is not in_job


@pytest.mark.parametrize("segment_bytes", [0, 80_000])
def test_a_recording_that_is_being_written_is_an_error(run: Run, segment_bytes: int) -> None:
    process = killed_halfway(run, segment_bytes, signal.SIGSTOP)
    try:
        state = ""
        deadline = time.monotonic() + 200
        while state != "T":
            assert time.monotonic() < deadline
            time.sleep(0.05)
            state = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        with pytest.raises(RecordingError, match="is being written"):
            recorded(run, segment_bytes)
    finally:
        process.kill()
        process.wait()
    assert "recording.incomplete-1" not in run.recordings


def test_edits_know_their_recording_in_any_working_directory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stored relative to the run; another recording that takes its place is not the same."""
    options: dict[str, Any] = {"episodes": 2, "n_envs": 2, "progress": False}
    monkeypatch.chdir(run.path.parent)
    moved = Run.open("run")
    source = record(moved, name="source", **options)
    mean = Ablate("a/actor/hidden_1", "mean", source=source)  # type: ignore[arg-type]
    record(moved, edits=[mean], **options).close()
    monkeypatch.chdir("run/checkpoints")
    source.release()
    assert source["a/actor/hidden_1"].to_numpy().any()
    path, source_path = Path("../recordings/recording.h5"), Path("../recordings/source.h5")
    assert replay(path, 1).largest < 1e-5
    with record("..", edits=[replace(mean, source=str(source_path))], exist="open", **options) as same:
        assert same.settings["edits"][0]["source"] == "recordings/source.h5"
    source.close()
    source_path.unlink()
    record("..", name="source", seed=9, **options).close()
    with pytest.raises(RecordingError, match="was recorded with other settings: edits was"):
        record("..", edits=[mean], exist="open", **options)
    with pytest.raises(ConfigError, match="is not the one that this edit was made with"):
        replay(path, 1)


def test_a_recording_with_other_edits_options_or_fill_is_not_reused(run: Run) -> None:
    def request(name: str, **options: Any) -> None:
        record(run, episodes=2, name=name, exist="open", progress=False, **options).close()

    options = {"edits": [Scale("a/actor/hidden_1", 0.5)], "fill": "captured", "env": LivesConfig(shortest=5)}
    for key, value in options.items():
        request(key, **{key: value})
        request(key, **{key: value})
        name = {"env": "env_config"}.get(key, key)
        with pytest.raises(RecordingError, match=f"recorded with other settings: {name} was .* requested None"):
            request(key)
    request("default")
    request("default", env=LivesConfig())  # the run's own
    for key, value in options.items():
        with pytest.raises(RecordingError, match="was None, requested"):
            request("default", **{key: value})
