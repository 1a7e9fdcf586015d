"""Recordings in segments: they read as one file does, through marlnb and through HDF5; a kill and a missing segment."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from marlnb.cli import main
from marlnb.errors import RecordingError
from marlnb.recording.capture.progress import RecordingProgress
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.journal import JournaledFile
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import join, rejoin
from marlnb.recording.tools.extract import extract
from marlnb.training.runs.run import Run
from tests.disk_limit import max_file_bytes
from tests.forked import Forked
from tests.recording.runs import LivesConfig, length_of, make_run

SEGMENT_BYTES = 80_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = make_run(tmp_path_factory.mktemp("segments") / "run", LivesConfig(), centralised=False)
    options = {"episodes": 60, "n_envs": 4, "progress": False, "frames": True}
    record(made, name="one", dtype="bfloat16", **options).close()  # type: ignore[arg-type]
    record(made, name="many", dtype="bfloat16", segment_bytes=SEGMENT_BYTES, **options).close()  # type: ignore[arg-type]
    return made


def test_info_counts_the_bytes_of_segments(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.recordings["many"]
    assert main(["info", str(path), "--json"]) == 0
    files = [path, *path.with_suffix(".segments").glob("*.h5")]
    assert json.loads(capsys.readouterr().out)["size_bytes"] == sum(file.stat().st_size for file in files)


def test_segments_read_as_one_file(run: Run) -> None:
    folder = run.path / "recordings" / "many.segments"
    assert len(list(folder.glob("*.h5"))) > 3
    with Recording.open(run.recordings["one"]) as one, Recording.open(run.recordings["many"]) as many:
        assert many.complete and many.episodes.equals(one.episodes) and many.checkpoints.equals(one.checkpoints)
        assert many.settings == one.settings and many.sites == one.sites and many.labels == one.labels
        assert many["a/actor/hidden_1"].dtype_stored == "bfloat16"
        for path in row_paths(one.file):
            a, b = one._array(path), many._array(path)
            assert (a.dims, a.shape, a.dtype_stored, a.labels) == (b.dims, b.shape, b.dtype_stored, b.labels)
            computed = path.startswith("activations/") or path.endswith("/value")  # of other batches: other rounding
            rtol, atol = (1e-2, 1e-6) if computed else (0, 0)
            assert np.allclose(a.to_numpy(), b.to_numpy(), rtol, atol, equal_nan=True), path
        chosen = {"episode": [3, 50, 17], "t": slice(1, 3), "agent": "a_1", "unit": [5, 60, 7]}
        a, b = (recording["a/actor/hidden_1"].sel(**chosen).to_numpy() for recording in (one, many))
        assert np.array_equal(a, b) and len(a) == 6
        for episode in range(0, 60, 7):
            assert np.array_equal(one.frame(episode=episode, t=2), many.frame(episode=episode, t=2))


def test_any_hdf5_reader_sees_numbers(run: Run) -> None:
    with h5py.File(run.recordings["one"]) as one, h5py.File(run.recordings["many"]) as many:
        dataset = many["activations/a/actor/hidden_1"]
        assert dataset.is_virtual and np.array_equal(dataset[:], one["activations/a/actor/hidden_1"][:])


def test_each_segment_is_a_recording(run: Run) -> None:
    n_episodes = 0
    for path in sorted((run.path / "recordings" / "many.segments").glob("*.h5")):
        with Recording.open(path) as segment:
            assert segment.complete and segment.episodes["finished"].all()
            observation = segment.steps("a", "observation").sel(agent="a_0").to_numpy()
            np.testing.assert_allclose(observation[:, 0], (segment.rows["episode"] + 2000) / 10, rtol=1e-6)
            for number, episode in segment.episodes.iterrows():
                assert episode["length"] == length_of(2000 + int(number))
            assert segment.checkpoints[["row_start", "row_stop"]].to_numpy().tolist() == [[0, len(segment)]]
            n_episodes += len(segment.episodes)
    assert n_episodes == 60


def test_a_disk_that_fills_at_the_end_leaves_an_incomplete_recording(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(progress: RecordingProgress) -> None:
        if progress.episodes >= 15:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))

    try:
        with pytest.raises(RecordingError, match="size of files is reached"):
            record(run, episodes=20, n_envs=2, segment_bytes=10_000_000, progress=False, on_step=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Recording.open(run.recordings["recording"]) as recording:
        assert not recording.complete and len(recording) == 0


def test_a_missing_or_shorter_segment_is_named(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path / "recordings", tmp_path / "moved")
    path, lost = tmp_path / "moved" / "many.h5", tmp_path / "moved" / "many.segments" / "0001.h5"
    with Recording.open(path) as recording:
        assert str(tmp_path) not in "".join(map(str, recording.file.attrs["segments"]))
        everything = len(recording)
    intact, content = lost.with_name("0000.h5"), lost.read_bytes()
    lost.unlink()
    with pytest.raises(RecordingError, match=r"many\.segments/0001\.h5 with \d+ rows is missing"):
        Recording.open(path)
    rejoin(path)
    with Recording.open(path) as recording:
        assert 0 < len(recording) < everything and not recording.complete
    lost.write_bytes(content)
    rejoin(path, complete=True)
    with h5py.File(intact, "r+") as file:
        file["steps/t"].resize(1, axis=0)
    with pytest.raises(RecordingError, match=r"0000\.h5, a segment of many\.h5, has 1 row; expected"):
        Recording.open(path)


def test_join_renumbers_only_on_request(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="segments must be below the folder"):
        join([run.recordings["one"]], tmp_path / "twice.h5")
    one = Path(shutil.copy(run.recordings["one"], tmp_path))
    with pytest.raises(RecordingError, match="60 episode numbers occur in two segments"):
        join([one, one], tmp_path / "twice.h5")
    assert list(tmp_path.iterdir()) == [one]
    join([one, one], tmp_path / "twice.h5", renumber=True)
    with Recording.open(tmp_path / "twice.h5") as twice, Recording.open(one) as once:
        assert twice.episodes.index.tolist() == list(range(120)) and twice.complete
        observation = twice.steps("a", "observation").sel(episode=67).to_numpy()
        assert np.array_equal(observation, once.steps("a", "observation").sel(episode=7).to_numpy())
        assert twice.rows["episode"].nunique() == 120
        assert twice.checkpoints["row_stop"].tolist() == [2 * len(once)]


@pytest.mark.parametrize("n_bytes", [1000, 20_000])
def test_a_full_disk_ends_no_process_that_joins(run: Run, tmp_path: Path, n_bytes: int) -> None:
    one = Path(shutil.copy(run.recordings["one"], tmp_path))
    with max_file_bytes(n_bytes), pytest.raises(RecordingError, match="a limit on the size of files is reached"):
        join([one, one], tmp_path / "twice.h5", renumber=True)
    assert list(tmp_path.iterdir()) == [one]


def test_join_refuses_what_differs(run: Run) -> None:
    other = record(run, name="fewer", episodes=2, sites="a/actor/hidden_1", dtype="bfloat16", progress=False)
    with pytest.raises(RecordingError, match=r"datasets differ: .*activations/a/actor/head"):
        join([run.recordings["one"], other.path], other.path.with_name("mixed.h5"))


RECORD = """
import sys
import torch
import tests.recording.runs
torch.set_num_threads(1)
from marlnb.recording.capture.recorder import record
record(sys.argv[1], episodes=200_000, n_envs=1, seed=3, values=False, progress=False, segment_bytes=400_000)
"""


def test_a_kill_loses_at_most_the_block_being_gathered(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(shortest=20), centralised=False)
    process = Forked(RECORD, run.path)
    path = run.path / "recordings" / "recording.h5"
    segments = path.with_suffix(".segments")
    deadline = time.monotonic() + 200
    while not (segments / "0003.h5").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    with Recording.open(path) as live:
        assert not live.complete and len(live) > 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Recording.open(path) as recording:
        assert not recording.complete
        files = [file for file in segments.glob("*.h5") if h5py.is_hdf5(file)]  # one may have been killed at birth
        assert len(recording.file.attrs["segments"]) == len(files) >= 3
        episodes, rows = recording.episodes, recording.rows
        assert episodes["length"].sum() == len(recording) and episodes.index.tolist() == list(range(len(episodes)))
        for number, episode in episodes[episodes["finished"]].iterrows():
            assert episode["length"] == length_of(3 + int(number), 20)
        assert (~episodes["finished"]).sum() <= 1
        observation = recording.steps("a", "observation").sel(agent="a_0").to_numpy()
        np.testing.assert_allclose(observation[:, 0], (rows["episode"] + 3) / 10, rtol=1e-6)
        np.testing.assert_allclose(observation[:, 1], rows["t"] / 10, rtol=1e-6)


def test_a_kill_at_the_start_of_a_segment_loses_no_earlier_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder as each write of a new segment's empty file leaves it."""
    write, folder, kills = JournaledFile.write, run.path / "recordings", []

    def observation(self: JournaledFile, data: Any) -> int:
        if "0002.h5" in self.path.name and not self._committed_size:
            kills.append(tmp_path / str(len(kills)))
            shutil.copytree(folder / "cut.segments", kills[-1] / "cut.segments")
            shutil.copy(folder / "cut.h5", kills[-1])
        return write(self, data)

    monkeypatch.setattr(JournaledFile, "write", observation)
    record(run, name="cut", episodes=20, segment_bytes=50_000, n_envs=1, progress=False).close()
    assert len(kills) > 10 and not any((kill / "cut.segments" / "0002.h5").exists() for kill in kills)
    for kill in (*kills[::12], kills[-1]):  # each is inspected by a process of its own
        with Recording.open(kill / "cut.h5") as recording:
            assert not recording.complete and len(recording.file.attrs["segments"]) >= 2
            assert recording.episodes["finished"].all() and recording.episodes["length"].sum() == len(recording) > 0


@pytest.mark.parametrize("rows", [[9, 3, 3, 200, 5, 4], [5, 5, 7, 8], list(range(300, 0, -7)), []])
def test_scattered_rows_come_in_the_order_asked_for(run: Run, rows: list[int]) -> None:
    with Recording.open(run.recordings["one"]) as one:
        array = one.steps("a", "observation")
        n_episodes = replace(array, rows=np.array(rows, dtype=np.int64)).to_numpy()
        assert np.array_equal(n_episodes, one.file[array.path][:][rows])


def test_masks_select_where_they_are_true(run: Run, tmp_path: Path) -> None:
    with Recording.open(run.recordings["one"]) as one:
        array, numbers = one["a/actor/hidden_1"], one.episodes.index.to_numpy()
        values = array.to_numpy()
        assert np.array_equal(array.sel(unit=values.std((0, 1)) > 0.5), values[..., values.std((0, 1)) > 0.5])
        assert array.sel(agent=[False, False, True]).labels["agent"][2] == "a_2"
        assert np.array_equal(array.sel(agent=[False, False, True]), values[:, [2]])
        chosen = one.rows["episode"].isin([3, 50, 17]).to_numpy()
        expected = array.sel(episode=[3, 17, 50]).to_numpy()
        assert (
            np.array_equal(array.sel(episode=np.isin(numbers, [3, 50, 17])), expected) and len(expected) == chosen.sum()
        )
        with extract(one, tmp_path / "part.h5", episodes=np.isin(numbers, [3, 50, 17])) as part:
            assert part.episodes.index.tolist() == [3, 17, 50]
        requests: list[dict[str, Any]] = [{"unit": [True, False]}, {"unit": [1.9]}, {"agent": True}, {"agent": 1.5}]
        requests += [{"episode": [True] * 59}, {"episode": 0.5}, {"t": [True, False]}, {"checkpoint": [True]}]
        requests += [{"agent": [[0], [1, 2]]}, {"t": [[0], [1, 2]]}, {"episode": ["a"]}]
        for request in requests:
            with pytest.raises(RecordingError, match=f"{next(iter(request))}.* takes "):
                array.sel(**request)


@pytest.mark.parametrize("number", [np.array(1), np.int64(1), torch.tensor(1)])
def test_a_number_in_an_array_is_a_number(run: Run, number: Any) -> None:
    with Recording.open(run.recordings["one"]) as one:
        array = one["a/actor/hidden_1"]
        for name in ("agent", "episode", "t"):
            assert np.array_equal(array.sel(**{name: number}), array.sel(**{name: 1}))
