"""repair: intact episodes are restored, damage is reported, an intact file is unchanged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import RecordingError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.journal import journal_of
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from tests.forked import run_forked
from tests.recording.runs import LivesConfig, length_of, make_run

SEED = 2000


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of several blocks and chunks."""
    patch = pytest.MonkeyPatch()
    patch.setattr("marlnb.recording.file.layout.MAX_BLOCK_ROWS", 64)
    run = make_run(tmp_path_factory.mktemp("repair") / "run", LivesConfig(), centralised=False)
    record(run, episodes=80, n_envs=4, progress=False, sites="*/hidden_1").close()
    patch.undo()
    return run.recordings["recording"]


@pytest.fixture
def path(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(intact, tmp_path / "damaged.h5"))


def check(path: Path, intact: Path, episodes: set[int]) -> None:
    """Every episode that is left holds the numbers that it had."""
    with Recording.open(path) as recording, Recording.open(intact) as original:
        assert set(recording.episodes.index[recording.episodes["finished"]]) == episodes
        paths = row_paths(recording.file)
        assert len({len(recording.file[name]) for name in paths}) == 1
        assert recording.episodes["length"].sum() == len(recording)
        left, backup = (
            recording.rows["episode"].isin(sorted(episodes)).to_numpy() for recording in (recording, original)
        )
        assert recording.rows[left].reset_index(drop=True).equals(original.rows[backup].reset_index(drop=True))
        for name in paths:
            a, b = recording._array(name).to_numpy()[left], original._array(name).to_numpy()[backup]
            assert np.array_equal(a, b, equal_nan=True), name
        columns = ["length", "n_steps", "seed"]
        assert recording.episodes.loc[sorted(episodes), columns].equals(
            original.episodes.loc[sorted(episodes), columns]
        )
        lengths = [length_of(SEED + number) for number in sorted(episodes)]
        assert recording.episodes.loc[sorted(episodes), "length"].tolist() == lengths
    assert sorted(item.name for item in path.parent.iterdir()) == [path.name]


def damage_chunk(path: Path, dataset: str, row: int) -> tuple[int, int]:
    """Overwrites the chunk that holds a row; returns its rows."""
    with h5py.File(path) as file:
        recording = file[dataset]
        place = (row // recording.chunks[0] * recording.chunks[0], *(0 for _ in recording.shape[1:]))
        info = recording.id.get_chunk_info_by_coord(place)
        rows = (place[0], min(len(recording), place[0] + recording.chunks[0]))
    noise = np.random.default_rng(0).integers(0, 256, info.size, dtype=np.uint8).tobytes()
    with open(path, "r+b") as raw:
        raw.seek(info.byte_offset)
        raw.write(noise)
    return rows


def episodes_in(intact: Path, start: int, stop: int) -> set[int]:
    with Recording.open(intact) as recording:
        return set(recording.rows["episode"][start:stop])


def test_nothing_wrong_nothing_changed(path: Path) -> None:
    before = path.read_bytes()
    result = mnb.repair(path)
    assert not result.changed and result.problems == () and result.complete and result.episodes == result.finished == 80
    assert path.read_bytes() == before and [item.name for item in path.parent.iterdir()] == [path.name]
    assert "no damage found" in str(result)


@pytest.mark.parametrize("part", [0.95, 0.7])
def test_a_truncated_file_keeps_its_intact_episodes(path: Path, intact: Path, part: float) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(int(part * size))
    with pytest.raises(RecordingError):
        Recording.open(path)
    result = mnb.repair(path, keep=True)
    backup = path.with_name("damaged.h5.bak")
    assert (
        result.changed and not result.complete and result.backup == backup and backup.stat().st_size == int(part * size)
    )
    assert "truncated" in result.problems[0]
    backup.unlink()
    left = set(range(80)) - set(result.lost_episodes)
    assert result.lost_episodes and len(left) >= 10
    check(path, intact, left)


@pytest.mark.parametrize(
    "dataset", ["activations/a/actor/hidden_1", "steps/t", "steps/episode", "steps/a/alive", "steps/a/reward"]
)
def test_garbage_loses_only_the_episodes_it_is_in(path: Path, intact: Path, dataset: str) -> None:
    start, stop = damage_chunk(path, dataset, 150)
    result = mnb.repair(path)
    lost = episodes_in(intact, start, stop)
    assert set(result.lost_episodes) >= lost if dataset == "steps/episode" else set(result.lost_episodes) == lost
    assert result.changed and not result.complete and result.lost_rows > 0
    check(path, intact, set(range(80)) - lost)


def test_datasets_of_unequal_length_are_cut_to_the_shortest(path: Path, intact: Path) -> None:
    with h5py.File(path, "r+") as file:
        rows = len(file["steps/t"])
        file["labels/height"].resize(rows - 13, axis=0)
        file["activations/b/actor/hidden_1"].resize(rows - 5, axis=0)
    result = mnb.repair(path)
    assert "datasets differ in length" in result.problems[0] and result.rows == rows - 13
    with Recording.open(intact) as original:
        ends = original.episodes["start"] + original.episodes["length"]
        left = set(original.episodes.index[ends <= rows - 13])
    check(path, intact, left)
    with Recording.open(path) as recording:
        assert (~recording.episodes["finished"]).sum() == 1


def test_a_wrong_table_of_episodes_is_rebuilt(path: Path, intact: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["episodes/start"][10:20] += 3
    result = mnb.repair(path)
    assert "rebuilt" in result.problems[0] and not result.lost_episodes and result.finished == 80
    check(path, intact, set(range(80)))
    with Recording.open(path) as recording, Recording.open(intact) as original:
        np.testing.assert_allclose(recording.episodes["a_2"], original.episodes["a_2"])
        assert recording.episodes["seed"].tolist() == original.episodes["seed"].tolist()


def test_a_rebuilt_table_has_the_seeds_of_its_episodes(tmp_path: Path) -> None:
    """Each checkpoint plays under the same seeds; a merged recording's numbers do not tell them."""
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    save_checkpoint(run.path / "checkpoints", run.checkpoint(7).load(), iteration=8, frames=0, returns={})
    options: dict[str, Any] = {"episodes": 3, "sites": [], "progress": False}
    both = record(run, checkpoint=[7, 8], seed=500, name="both", **options)
    merged = mnb.merge([record(run, seed=seed, name=f"{seed}", **options) for seed in (500, 900)], tmp_path / "m.h5")
    for recording, seeds in ((both, [500, 501, 502] * 2), (merged, [500, 501, 502, 900, 901, 902])):
        recording.close()
        with h5py.File(recording.path, "r+") as file:
            file["episodes/start"][1:2] += 3
        assert "rebuilt" in mnb.repair(recording.path).problems[0]
        with Recording.open(recording.path) as repaired:
            assert repaired.episodes["seed"].tolist() == seeds and repaired.episodes["finished"].all()


def test_what_cannot_be_saved_is_left_untouched(path: Path, tmp_path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(3000)
    before = path.read_bytes()
    with pytest.raises(RecordingError, match=r"it is unchanged|rows cannot be assigned"):
        mnb.repair(path)
    assert path.read_bytes() == before and [item.name for item in tmp_path.iterdir()] == [path.name]
    path.write_bytes(b"no recording at all" * 100)
    with pytest.raises(RecordingError, match="does not start as an HDF5 file"):
        mnb.repair(path)
    with pytest.raises(RecordingError, match="there is no recording"):
        mnb.repair(tmp_path / "nowhere.h5")


WRITE = """
import os, sys
from pathlib import Path
import numpy as np
from marlnb.recording.file import journal
from marlnb.recording.file.layout import Field
from marlnb.recording.file.writer import RecordingWriter
fields = [Field("activations/a/actor/x", ("agent", "unit"), (1, 128), "float32", "a")]
fields += [Field(f"steps/{name}", (), (), "int64") for name in ("t", "episode", "env_id")]
attributes = {"format": "marlnb-recording", "version": 1, "seed": 5, "every": 1, "settings": "{}", "spec": "{}"}
agents = {"id": [0], "name": ["a_0"], "group": ["a"], "policy_index": [0]}
writer = RecordingWriter(Path(sys.argv[1]), fields, attributes, agents, expected_rows=64)
write_all, left = journal._write_all, 1 + int(sys.argv[2])  # the journal itself is written first

def dying(handle, data, offset):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    write_all(handle, data, offset)

for number in range(40):
    if number == 39:
        commit = writer._storage.commit
        def last():
            journal._write_all = dying
            commit()
        writer._storage.commit = last
    columns = {"episode": number, "start": writer.rows, "length": 64, "n_steps": 64, "seed": 5 + number}
    writer.add_episodes({name: np.array([value]) for name, value in columns.items()}, np.zeros((1, 1)))
    ones = np.ones((1, 64), np.int64)
    values = np.full((1, 64, 1, 128), number, np.float32)
    writer.append([values, np.arange(64)[None], number * ones, 0 * ones])
"""


def test_a_file_that_claims_a_terabyte_takes_neither_its_space_nor_its_time(path: Path, intact: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(2**40)
    used = shutil.disk_usage(path).used
    repair = mnb.repair(path)
    assert repair.rows and repair.finished
    assert shutil.disk_usage(path).used - used < 2**30
    check(path, intact, set(range(80)))


def test_a_copy_without_space_for_it_is_not_started(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marlnb.recording.tools.repair.free_bytes", lambda path: 5)
    before = path.read_bytes()
    with pytest.raises(
        RecordingError, match=r"its copy needs [\d.]+ [kM]B, and the disk /.* has 5 B free; it is unchanged"
    ):
        mnb.repair(path)
    assert path.read_bytes() == before and len(list(path.parent.glob("*"))) == 1


@pytest.mark.parametrize("writes", [0, 2])
def test_a_commit_that_a_kill_cut_short_is_completed(tmp_path: Path, writes: int) -> None:
    path = tmp_path / "cut.h5"
    assert run_forked(WRITE, path, writes) == 9
    assert journal_of(path).exists()
    result = mnb.repair(path)
    assert result.problems[0] == "a write had been interrupted; it has been completed" and not result.complete
    assert result.rows == 40 * 64 and result.finished == 40 and not result.lost_episodes
    with Recording.open(path) as recording:
        assert np.array_equal(recording["a/actor/x"].to_numpy()[:, 0, 0], np.repeat(np.arange(40), 64))


def test_segments_are_repaired_one_by_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    record(run, episodes=24, n_envs=4, progress=False, sites="*/hidden_1", segment_bytes=60_000).close()
    path = run.recordings["recording"]
    assert not mnb.repair(path).changed
    with Recording.open(path) as recording:
        n_before = len(recording)
    segment = path.with_suffix(".segments") / "0001.h5"
    with open(segment, "r+b") as file:
        file.truncate(2000)
    result = mnb.repair(path)
    assert any("0001.h5 cannot be repaired" in what for what in result.problems) and 0 < result.rows < n_before
    with Recording.open(path) as recording:
        observation = recording.steps("a", "observation").sel(agent="a_0").to_numpy()
        np.testing.assert_allclose(observation[:, 0], (recording.rows["episode"] + SEED) / 10, rtol=1e-6)
        assert not recording.complete
