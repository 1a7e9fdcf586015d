"""Kills and full disks: everything that was flushed is readable, and the file is marked incomplete."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from marlnb.errors import RecordingError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.journal import complete_commit, journal_of
from marlnb.recording.file.layout import Field
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.writer import RecordingWriter
from tests.forked import Forked, run_forked
from tests.recording.runs import LivesConfig, length_of, make_run

FIELDS = [Field("activations/a/x", ("agent", "unit"), (2, 128), "float32", "a"), Field("steps/t", (), (), "int64")]
KILLS = """
import os, signal, sys
from pathlib import Path
import numpy as np
from marlnb.recording.file.journal import complete_commit, journal_of
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RecordingWriter
fields = [Field("activations/a/x", ("agent", "unit"), (2, 128), "float32", "a"), Field("steps/t", (), (), "int64")]

def write(path, pipe):
    writer = RecordingWriter(path, fields, {"seed": 0}, {"id": [0], "name": ["a_0"]}, expected_rows=512)
    number = 0
    while True:
        length = 20 + number % 9
        columns = {"episode": number, "start": writer.rows, "length": length, "n_steps": length, "seed": number}
        writer.add_episodes({name: np.array([value]) for name, value in columns.items()}, np.zeros((1, 1)))
        writer.append([np.full((1, length, 2, 128), number, np.float32), np.arange(length)[None]])
        number += 1
        os.write(pipe, (writer.rows // writer.block_rows * writer.block_rows).to_bytes(8, "little"))

for trial in range(12):
    reader, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        write(Path(sys.argv[1]) / f"{trial}.h5", pipe)
    os.close(pipe)
    flushed = 0
    while flushed < 1000 + 777 * trial:
        flushed = int.from_bytes(os.read(reader, 8), "little")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    rest = os.read(reader, 10**6)
    print(int.from_bytes(rest[-8:], "little") if rest else flushed)
"""


def test_a_killed_writer_leaves_every_block(tmp_path: Path) -> None:
    output = subprocess.run([sys.executable, "-c", KILLS, str(tmp_path)], capture_output=True, text=True, check=True)
    for trial, flushed in enumerate(map(int, output.stdout.split())):
        complete_commit(tmp_path / f"{trial}.h5", locking=None)
        with h5py.File(tmp_path / f"{trial}.h5", "r") as file:
            assert not file.attrs["complete"]
            rows = min(len(file["steps/t"]), len(file["activations/a/x"]))
            assert rows >= flushed >= 1000 + 777 * trial
            values, t = file["activations/a/x"][:rows], file["steps/t"][:rows]
            number = np.repeat(np.arange(rows // 20), [20 + k % 9 for k in range(rows // 20)])[:rows]
            assert np.array_equal(values, np.broadcast_to(number[:, None, None], values.shape))
            assert np.array_equal(t, np.arange(rows) - np.searchsorted(number, number))
            is_written = file["episodes/start"][:] + file["episodes/length"][:] <= rows
            assert is_written.sum() >= number[-1]
    assert trial == 11


CUT_SHORT = """
import os, sys
from pathlib import Path
import numpy as np
from marlnb.recording.file import journal
from marlnb.recording.file.writer import RecordingWriter
from tests.recording.file.test_crashes import FIELDS
write_all, left = journal._write_all, 1 + int(sys.argv[2])  # the journal itself is written first

def dying(handle, data, offset):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    write_all(handle, data, offset)

writer = RecordingWriter(Path(sys.argv[1]), FIELDS, {"seed": 0}, {"id": [0], "name": ["a_0"]}, expected_rows=64)
for number in range(40):
    if number == 39:
        commit = writer._storage.commit
        def last():
            journal._write_all = dying
            commit()
        writer._storage.commit = last
    writer.append([np.full((1, 64, 2, 128), number, np.float32), np.full((1, 64), number)])
"""


@pytest.mark.parametrize("writes", [0, 1, 4])
def test_a_commit_that_was_cut_short_is_completed(tmp_path: Path, writes: int) -> None:
    path = tmp_path / "cut.h5"
    assert run_forked(CUT_SHORT, path, writes) == 9 and journal_of(path).stat().st_size > 0
    complete_commit(path, locking=None)
    assert not journal_of(path).exists()
    with h5py.File(path) as file:
        for field in FIELDS:
            assert np.array_equal(file[field.path][:].reshape(40 * 64, -1)[:, 0], np.repeat(np.arange(40), 64))


def test_a_journal_that_was_never_finished_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "early.h5"
    assert run_forked(CUT_SHORT, path, 0) == 9
    journal = journal_of(path)
    journal.write_bytes(journal.read_bytes()[:-10])
    complete_commit(path, locking=None)
    assert not journal.exists()
    with h5py.File(path) as file:
        assert np.array_equal(file["steps/t"][:], np.repeat(np.arange(39), 64))


RECORD = """
import sys
import torch
import tests.recording.runs
torch.set_num_threads(1)
from marlnb.recording.file import layout
layout.MAX_BLOCK_ROWS = 512
from marlnb.recording.capture.recorder import record
n_envs = int(sys.argv[2])
record(sys.argv[1], episodes=20_000 if n_envs == 1 else 60_000, n_envs=n_envs, seed=3, values=False, progress=False)
"""


@pytest.mark.parametrize("n_envs", [1, 4])
def test_a_killed_recording_opens(tmp_path: Path, n_envs: int) -> None:
    run = make_run(tmp_path / "run", LivesConfig(shortest=100 if n_envs == 1 else 3), centralised=False)
    process = Forked(RECORD, run.path, n_envs)
    path = run.path / "recordings" / "recording.h5"
    deadline = time.monotonic() + 200
    while not (path.exists() and path.stat().st_size > 3e6):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Recording.open(path) as recording:
        assert not recording.complete and len(recording) >= 256
        episodes = recording.episodes
        shortest = 100 if n_envs == 1 else 3
        for number, episode in episodes[episodes["finished"]].iterrows():
            assert episode["length"] == length_of(3 + int(number), shortest)
        assert len(episodes) - episodes["finished"].sum() <= 1
        assert episodes["length"].sum() == len(recording)
        observation = recording.steps("a", "observation").sel(agent="a_0").to_numpy()
        rows = recording.rows
        np.testing.assert_allclose(observation[:, 0], (rows["episode"] + 3) / 10, rtol=1e-6)
        np.testing.assert_allclose(observation[:, 1], rows["t"] / 10, rtol=1e-6)


def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marlnb.recording.file.layout.MAX_BLOCK_ROWS", 512)
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, hard))
    try:
        with pytest.raises(RecordingError, match=r"size of files is reached .*rows before it are kept"):
            record(run, episodes=3000, n_envs=64, seed=3, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    path = run.recordings["recording"]
    with Recording.open(path) as recording:
        assert not recording.complete and len(recording) > 2000
        rows = recording.rows
        observation = recording.steps("a", "observation").sel(agent="a_2").to_numpy()
        np.testing.assert_allclose(
            observation, np.stack([rows["episode"] + 3, rows["t"], rows["t"] * 0 + 2], axis=1) / 10, rtol=1e-6
        )


LIVE = """
import sys
import torch
import tests.recording.runs
from marlnb.recording.file import layout
from marlnb.recording.capture.recorder import record
torch.set_num_threads(1)
layout.MAX_BLOCK_ROWS = 64
record(sys.argv[1], episodes=50_000, n_envs=8, seed=3, values=False, progress=False)
"""


def test_opening_a_recording_that_changes_often_never_calls_it_damaged(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(shortest=20), centralised=False)
    path = run.path / "recordings" / "recording.h5"
    process = Forked(LIVE, run.path)
    try:
        deadline = time.monotonic() + 200
        while not path.exists() or path.stat().st_size < 500_000:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        for _ in range(4):
            try:
                with Recording.open(path, locking=False) as recording:
                    assert not recording.complete
            except RecordingError as error:
                assert "it changed while it was read; open it again" in str(error)
                assert "repair" not in str(error)
    finally:
        process.kill()
        process.wait()
    with Recording.open(path) as recording:
        assert recording.episodes["length"].sum() == len(recording) > 0


def test_a_file_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "live.h5"
    agents = {"id": [0], "name": ["a_0"]}
    writer = RecordingWriter(path, FIELDS, {"format": "marlnb-recording", "version": 1}, agents, expected_rows=100)
    code = (
        "import sys; from marlnb.recording.file.opening import open_recording_file as o; from pathlib import Path\n"
        "try: o(Path(sys.argv[1]), None)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "print(o(Path(sys.argv[1]), False).attrs['complete'])"
    )
    output = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert output.startswith("RecordingError") and "is being written" in output and output.endswith("False\n")
    writer.close(complete=True)


@pytest.mark.parametrize("number", [37, 524])
def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError(f"[Errno {number}] Unable to lock file, errno = {number}, error message = 'No locks available'")

    path = tmp_path / "x.h5"
    RecordingWriter(path, FIELDS, {}, {"id": [0], "name": ["a_0"]}, expected_rows=10).close(complete=True)
    monkeypatch.setattr(h5py, "File", fail)
    with pytest.raises(RecordingError, match="locking=False"):
        Recording.open(path)


def test_space_that_was_claimed_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "small.h5"
    writer = RecordingWriter(path, FIELDS, {}, {"id": [0], "name": ["a_0"]}, expected_rows=100_000)
    writer.append([np.ones((1, 5, 2, 128), np.float32), np.arange(5)[None]])
    writer.flush()
    assert path.stat().st_size > 8_000_000
    writer.close(complete=True)
    with h5py.File(path) as file:
        assert path.stat().st_size <= file.id.get_filesize() < 3_000_000
        assert file["activations/a/x"][:].sum() == 5 * 2 * 128


def test_the_process_that_was_forked_opens_the_file_for_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    with record(run, episodes=3, progress=False) as recording:
        handle = recording.file.id.id
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, str(len(recording["a/actor/head"].to_numpy())).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert int(os.read(reader, 100)) == len(recording) and recording.file.id.id == handle
        os.close(reader), os.close(writer)
