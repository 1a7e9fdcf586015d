"""Exports hold the recording's numbers: each is read back by its own library and compared."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from marlnb.envs.mpe.simple_speaker_listener import SimpleSpeakerListenerConfig
from marlnb.errors import ConfigError, RecordingError, RecordingWriteError
from marlnb.recording.capture.recorder import record
from marlnb.recording.export.arrays import to_pandas, to_xarray
from marlnb.recording.export.minari import to_minari
from marlnb.recording.export.nwb import to_nwb
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.extract import extract
from tests.disk_limit import max_file_bytes
from tests.recording.runs import LivesConfig, make_run


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    run = make_run(tmp_path_factory.mktemp("exports") / "run", LivesConfig(), centralised=False)
    return record(run, episodes=8, n_envs=4, progress=False, dtype="float16")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    config = SimpleSpeakerListenerConfig(max_cycles=6)
    run = make_run(tmp_path_factory.mktemp("exports") / "talk", config)
    return record(run, episodes=4, n_envs=4, progress=False)


def test_xarray_is_labelled_and_reads_what_is_asked_for(lives: Recording) -> None:
    data = to_xarray(lives, sites="a/*", fields=["observation", "reward", "odd", "height"])
    assert data["a/actor/hidden_1"].dims == ("row", "a_agent", "a/actor/hidden_1_unit") or "unit" in data.dims
    assert data["a/reward"].coords["a_agent"].values.tolist() == ["a_0", "a_1", "a_2"]
    for name in ("a/actor/hidden_1", "a/actor/head"):
        assert np.array_equal(data[name].values, lives[name].to_numpy())
    assert np.array_equal(data["labels/odd"].values, lives.label("odd").to_numpy())
    some = data["a/observation"].isel(row=[5, 2, 9], a_agent=1, feature=slice(1, 3))
    assert np.array_equal(some.values, lives.steps("a", "observation").to_numpy()[[5, 2, 9], 1, 1:3])
    assert data["a/observation"].isel(row=3).sel(feature="t", a_agent="a_0") == lives.rows["t"][3] / np.float32(10)
    assert np.array_equal(data["episode"].values, lives.rows["episode"])
    means = data["a/reward"].groupby("episode").sum()
    expected = lives.episodes[["a_0", "a_1", "a_2"]]
    np.testing.assert_allclose(means.sel(episode=expected.index).values, expected)


def test_xarray_names_the_last_checkpoint_of_the_file(lives: Recording, tmp_path: Path) -> None:
    part = extract(lives, tmp_path / "part.h5", episodes=[0], sites=[])
    part.close()
    with h5py.File(part.path, "r+") as file:
        file["checkpoints/sha256"][-1] = b"99"
    with Recording.open(part.path) as recording:
        assert recording.checkpoint[1] == to_xarray(recording).attrs["checkpoint"] == "99"


def test_xarray_takes_lists_of_names_and_indices(lives: Recording) -> None:
    data = to_xarray(lives, sites="a/actor/hidden_1", fields="steps/a/observation")
    values = lives.steps("a", "observation").to_numpy()
    assert np.array_equal(data["a/observation"].sel(feature=["agent", "seed"]), values[..., [2, 0]])
    units = data["a/actor/hidden_1"].isel(unit=[1, 5, 7], row=[4, 1])
    assert np.array_equal(units, lives["a/actor/hidden_1"].to_numpy()[[4, 1]][..., [1, 5, 7]])


def test_xarray_reads_nothing_before_it_is_used(lives: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_xarray(lives, sites="a/actor/hidden_1", fields=[], episodes=[3])
    read: list[int] = []
    original = type(lives["a/actor/hidden_1"])._read
    monkeypatch.setattr(
        type(lives["a/actor/hidden_1"]),
        "_read",
        lambda self, rows, **how: read.append(len(rows)) or original(self, rows, **how),
    )
    repr(data)
    assert read == []
    values = data["a/actor/hidden_1"].isel(row=slice(0, 2)).values
    assert read == [2] and np.array_equal(values, lives["a/actor/hidden_1"].sel(episode=3, t=slice(0, 2)).to_numpy())


def test_the_table_has_a_row_a_step_and_agent(lives: Recording) -> None:
    table = to_pandas(lives, sites="a/actor/hidden_1", fields=["observation", "reward", "odd"], episodes=slice(2, 4))
    chosen = lives.episodes.loc[[2, 3]]
    assert len(table) == 4 * chosen["length"].sum()
    later, step = to_pandas(lives, sites=[], fields="reward", episodes=[1, 7]), ["episode", "t"]
    assert np.array_equal(lives.rows.loc[later["row"], step], later[step])
    one = table[(table["agent"] == "a_1") & (table["episode"] == 3)]
    part = {"episode": 3, "agent": "a_1"}
    observation = lives.steps("a", "observation").sel(**part).to_numpy()
    names = ["observation.seed", "observation.t", "observation.agent"]
    assert np.array_equal(one[names].to_numpy(np.float32), observation)
    units = lives["a/actor/hidden_1"].sel(**part).to_numpy()
    columns = [f"actor/hidden_1[{unit}]" for unit in range(64)]
    assert np.array_equal(one[columns].to_numpy(np.float32), units)
    assert one["labels/odd"].tolist() == (one["t"] % 2).tolist()
    sums = table.groupby(["episode", "agent"])["reward"].sum()
    assert sums[3, "b_0"] == chosen.loc[3, "b_0"]
    assert table[table["group"] == "b"][columns].isna().all().all()


def test_minari_opens_from_the_folder(lives: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path.parent)
    made = to_minari(lives, "lives-v0", folder=tmp_path.name)
    assert made == ["lives-a_0-v0", "lives-a_1-v0", "lives-a_2-v0", "lives-b_0-v0"]
    with pytest.raises(RecordingError, match="dataset 'lives-a_0-v0' already exists; give another name or version"):
        to_minari(lives, "lives-v0", folder=tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for group, agent in (("a", "a_0"), ("a", "a_1"), ("b", "b_0")):
        data = minari.load_dataset(f"lives-{agent}-v0")
        assert data.total_episodes == 8
        for episode in data.iterate_episodes():
            at = {"episode": int(episode.id), "agent": agent}
            fields = ("observation", "action", "reward", "acting", "alive", "terminated", "truncated")
            steps = {name: lives.steps(group, name).sel(**at).to_numpy() for name in fields}
            acts = steps["acting"] & steps["alive"]
            assert np.array_equal(episode.observations[:-1], steps["observation"][acts])
            assert np.array_equal(episode.observations[-1], episode.observations[-2])
            assert np.array_equal(episode.actions, steps["action"][acts])
            assert episode.rewards.sum() == pytest.approx(steps["reward"].sum())
            assert episode.terminations[:-1].sum() == 0 and episode.truncations[:-1].sum() == 0
            assert bool(episode.terminations[-1]) == bool(steps["terminated"].any())
            assert bool(episode.truncations[-1]) == bool(steps["truncated"].any())
    assert "last recorded one is repeated" in minari.load_dataset("lives-b_0-v0").storage.metadata["description"]
    with pytest.raises(RecordingError, match="no recorded agent 'a_9'; did you mean"):
        to_minari(lives, "x-v0", agents=["a_9"], folder=tmp_path)
    with pytest.raises(RecordingError, match="must be <name>-v<number>"):
        to_minari(lives, "x", folder=tmp_path)


def test_minari_takes_a_part_of_the_episodes(lives: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    part = extract(lives, tmp_path / "part.h5", episodes=[1, 3, 6], sites=[])
    assert to_minari(part, "part-v0", agents=["b_0"], folder=tmp_path) == ["part-v0"]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = list(minari.load_dataset("part-v0").iterate_episodes())
    assert [int(episode.id) for episode in episodes] == [0, 1, 2]
    for episode, number in zip(episodes, (1, 3, 6)):
        assert set(episode.infos["episode"]) == {number}
        observation = lives.steps("b", "observation").sel(episode=number, agent="b_0").to_numpy()
        assert np.array_equal(episode.observations[:-1], observation[episode.infos["t"][:-1]])


def test_minari_writes_all_datasets_or_none(lives: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert to_minari(lives, "lives-b_0-v0", agents="b_0") == ["lives-b_0-v0"]
    with pytest.raises(RecordingError, match="'lives-b_0-v0' already exists"):
        to_minari(lives, "lives-v0")
    with pytest.raises(RecordingError, match=r"letters, digits, _, - and / in the name; got 'my lives-v0'"):
        to_minari(lives, "my lives-v0")
    storage = type(minari.load_dataset("lives-b_0-v0").storage)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(storage, "update_episodes", _interrupt)
        to_minari(lives, "new/lives-v0", group="b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lives-b_0-v0"]
    assert to_minari(lives, "new/lives-v0", group="b") == ["new/lives-v0"]
    assert minari.load_dataset("new/lives-v0").total_episodes == 8
    assert minari.namespace.list_local_namespaces() == ["new"]


def _interrupt(*args: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("limit_bytes", [1000, 4000, 30_000])
@pytest.mark.parametrize("kind", ["minari", "nwb"])
def test_a_write_that_the_disk_refuses_is_an_error(
    lives: Recording, tmp_path: Path, kind: str, limit_bytes: int
) -> None:
    """It ended the process, in HDF5."""
    pytest.importorskip({"nwb": "pynwb"}.get(kind, kind))
    with max_file_bytes(limit_bytes), pytest.raises(RecordingWriteError, match="a limit on the size of files is"):
        to_nwb(lives, tmp_path / "lives.nwb") if kind == "nwb" else to_minari(lives, "lives-v0", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nwb_is_valid_and_holds_units_by_time(talk: Recording, tmp_path: Path) -> None:
    pynwb = pytest.importorskip("pynwb")
    path = to_nwb(talk, tmp_path / "talk.nwb", sites="listener/*", fields=["action", "reward", "goal", "acting"])
    assert pynwb.validate(path=str(path)) == []
    with pynwb.NWBHDF5IO(str(path), "r") as io:
        file = io.read()
        units = file.processing["ecephys"]["listener.actor.hidden_1 listener_0"]
        assert np.array_equal(units.data[:], talk["listener/actor/hidden_1"].sel(agent="listener_0").to_numpy())
        assert np.array_equal(units.timestamps[:], np.arange(len(talk)))
        acting = file.processing["behavior"]["listener.acting listener_0"]
        assert np.array_equal(acting.data[:], talk.steps("listener", "acting").sel(agent="listener_0").to_numpy())
        trials = file.trials.to_dataframe()
        assert trials["episode"].tolist() == talk.rows["episode"].drop_duplicates().tolist()
        assert (trials["stop_time"] - trials["start_time"]).tolist() == [6.0] * 4
        values = trials.set_index("episode")["return_listener_0"]
        np.testing.assert_allclose(values.loc[range(4)], talk.episodes["listener_0"])
    with pytest.raises(RecordingError, match="already exists"):
        to_nwb(talk, path)
    slower = to_nwb(talk, tmp_path / "slower.nwb", sites=[], fields=["reward"], step_s=2)
    with pynwb.NWBHDF5IO(str(slower), "r") as io:
        assert io.read().trials["stop_time"][0] == 12.0
    with extract(talk, tmp_path / "third.h5", every=3, sites=[]) as third:
        assert third.rows["t"].tolist() == [0, 3] * 4
        every_third = to_nwb(third, tmp_path / "third.nwb", fields=["reward"], step_s=0.5)
    with pynwb.NWBHDF5IO(str(every_third), "r") as io:
        file = io.read()
        rewards = file.processing["behavior"]["listener.reward listener_0"]
        assert rewards.timestamps[:].tolist() == [0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0, 10.5]
        trials = file.trials.to_dataframe()
        assert trials["start_time"].tolist() == [0.0, 3.0, 6.0, 9.0] and trials["stop_time"][0] == 3.0
    for step_s, message in ((-0.5, "more than 0; got -0.5"), (float("nan"), "a finite number; got nan")):
        with pytest.raises(ConfigError, match=f"step_s must be {message}"):
            to_nwb(talk, tmp_path / "never.nwb", step_s=step_s)
