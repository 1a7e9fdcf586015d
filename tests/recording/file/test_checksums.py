"""Checksums: every byte of a recording has one; a changed value is noticed before it is used, and repair drops it."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import RecordingError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.checksums import Checksums
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import segments_folder
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, make_run

SITE = "a/actor/hidden_1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    patch = pytest.MonkeyPatch()
    patch.setattr("marlnb.recording.file.layout.MAX_BLOCK_ROWS", 32)  # several chunks
    made = make_run(tmp_path_factory.mktemp("checksums") / "run", LivesConfig(), centralised=False)
    options = {"episodes": 30, "n_envs": 4, "progress": False, "sites": "*/hidden_1", "frames": True}
    record(made, name="one", **options).close()  # type: ignore[arg-type]
    record(made, name="many", segment_bytes=60_000, **options).close()  # type: ignore[arg-type]
    patch.undo()
    return made


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run.path / "recordings", tmp_path / "recordings"))


def flip(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def chunk_of(path: Path, row: int) -> tuple[int, range]:
    """The first byte of the chunk of agent 1 that holds a row, and its rows."""
    with h5py.File(path) as file:
        dataset = file[f"activations/{SITE}"]
        first = row // dataset.chunks[0] * dataset.chunks[0]
        info = dataset.id.get_chunk_info_by_coord((first, 1, 0))
        return info.byte_offset, range(first, min(len(dataset), first + dataset.chunks[0]))


def assert_covered(path: Path) -> None:
    checksums = Checksums.read(path)
    assert checksums is not None and not checksums.damaged_ranges()
    with h5py.File(path, "r") as file:
        end = int.from_bytes(path.read_bytes()[40:48], "little")  # HDF5's end of file, in its superblock
        assert checksums._stops[-1] == end < path.stat().st_size == file.id.get_filesize()


def test_every_file_that_marlnb_writes_has_checksums(run: Run, folder: Path) -> None:
    one, many = folder / "one.h5", folder / "many.h5"
    mnb.extract(one, folder / "part.h5", episodes=range(3, 20), agents="a_*").close()
    mnb.merge([folder / "part.h5"], folder / "merged.h5").close()
    shutil.copyfile(one, run.path / "recordings" / "filled.h5")
    with Recording.open(run.path / "recordings" / "filled.h5") as recording:
        mnb.backfill(recording, "*/actor/head")
        assert len(recording["a/actor/head"].to_numpy()) == len(recording)
    parts = sorted(segments_folder(many).iterdir())
    for path in (one, many, *parts, folder / "part.h5", folder / "merged.h5", recording.path):
        assert_covered(path)
    recording.path.unlink()


def test_a_changed_value_is_noticed_when_its_rows_are_read(folder: Path) -> None:
    path = folder / "one.h5"
    offset, rows = chunk_of(path, 60)
    flip(path, offset + 5)
    with Recording.open(path) as recording:
        array = recording[SITE]
        recording["b/actor/hidden_1"].to_numpy()
        array.sel(agent="a_0").to_numpy()  # another chunk
        before = recording.episodes.index[recording.episodes["start"] + recording.episodes["length"] <= rows.start]
        array.sel(episode=before.tolist()).to_numpy()
        for read in (array.to_numpy, array.to_torch, lambda: list(array.batches(16))):
            with pytest.raises(RecordingError, match=rf"hidden_1 from row {rows.start} on .*checksum.*`marlnb repair"):
                read()


def test_repair_drops_the_episodes_of_a_changed_value_and_no_others(folder: Path) -> None:
    path = folder / "one.h5"
    with Recording.open(path) as recording:
        number, expected = recording.rows["episode"].to_numpy(), recording[SITE].to_numpy()
    offset, rows = chunk_of(path, 60)
    flip(path, offset + 5)
    result = mnb.repair(path)
    assert set(result.lost_episodes) == set(number[rows.start : rows.stop]) and "changed" in result.problems[0]
    assert_covered(path)
    with Recording.open(path) as recording:
        kept = ~np.isin(number, result.lost_episodes)
        assert np.array_equal(recording[SITE].to_numpy(), expected[kept])


def test_a_change_of_the_structure_is_noticed_on_opening(folder: Path) -> None:
    path = folder / "one.h5"
    with h5py.File(path) as file:
        offset = file["episodes/return"].id.get_chunk_info(0).byte_offset
    flip(path, offset + 8)  # a return; nothing else tells that it is wrong
    with pytest.raises(RecordingError, match=f"{path} is damaged: its structure .*checksum"):
        Recording.open(path)
    flip(path, offset + 8)
    Recording.open(path).close()


def test_a_changed_value_in_a_segment_is_noticed(folder: Path) -> None:
    path = folder / "many.h5"
    segment = sorted(segments_folder(path).iterdir())[1]
    flip(segment, chunk_of(segment, 3)[0] + 5)
    with Recording.open(path) as recording:
        recording[SITE].sel(episode=0).to_numpy()
        with pytest.raises(RecordingError, match=f"{segment} is damaged"):
            recording[SITE].to_numpy()
    assert mnb.repair(path).lost_episodes
    with Recording.open(path) as recording:
        assert len(recording[SITE].to_numpy()) == len(recording)


def test_a_damaged_joined_file_is_made_again_from_its_segments(folder: Path) -> None:
    path = folder / "many.h5"
    with Recording.open(path) as recording:
        expected = recording[SITE].to_numpy()
    flip(path, 3000)
    with pytest.raises(RecordingError, match="checksum"):
        Recording.open(path)
    assert "made again" in mnb.repair(path).problems[0]
    with Recording.open(path) as recording:
        assert np.array_equal(recording[SITE].to_numpy(), expected)


def test_another_program_may_change_a_recording(folder: Path) -> None:
    path = folder / "one.h5"
    with h5py.File(path, "r+") as file:
        file["labels/new"] = np.arange(len(file["steps/t"]))
    assert Checksums.read(path) is None
    with Recording.open(path) as recording:
        assert recording.label("new").to_numpy()[3] == 3


def test_a_damaged_table_of_checksums_is_noticed(folder: Path) -> None:
    path = folder / "one.h5"
    flip(path, path.stat().st_size - 60)
    with pytest.raises(RecordingError, match="its table of checksums does not fit"):
        Recording.open(path)
    result = mnb.repair(path)
    assert result.problems == ("its table of checksums was damaged",) and not result.lost_episodes
    Recording.open(path).close()
