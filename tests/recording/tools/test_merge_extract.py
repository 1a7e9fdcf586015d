"""merge and extract: rows equal the sources', episodes are adjacent, differences are named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import RecordingError, SiteError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = make_run(tmp_path_factory.mktemp("parts") / "run", LivesConfig(), centralised=False)
    for name, seed in (("first", 2000), ("second", 5000)):
        record(made, name=name, episodes=20, n_envs=4, seed=seed, dtype="bfloat16", frames=True, progress=False).close()
    return made


@pytest.fixture
def first(run: Run) -> Recording:
    return Recording.open(run.recordings["first"])


def test_a_part_holds_the_same_numbers(first: Recording, tmp_path: Path) -> None:
    part = mnb.extract(
        first,
        tmp_path / "part.h5",
        episodes=[3, 4, 17],
        agents=["a_0", "a_2"],
        sites="*/hidden_1",
        every=2,
        fields=["observation", "height", "reward"],
    )
    assert part.complete and part.agents == ["a_0", "a_2"] and part.sites == ["a/actor/hidden_1"]
    assert part.episodes.index.tolist() == [3, 4, 17] and part.rows["t"].max() <= 8 and (part.rows["t"] % 2 == 0).all()
    assert sorted(path for path in row_paths(part.file) if path.startswith("steps/a")) == [
        "steps/a/observation",
        "steps/a/reward",
    ]
    for episode in (3, 4, 17):
        expected = first["a/actor/hidden_1"].sel(episode=episode, agent=["a_0", "a_2"]).to_numpy()[::2]
        assert np.array_equal(part["a/actor/hidden_1"].sel(episode=episode).to_numpy(), expected)
        observation = part.steps("a", "observation").sel(episode=episode, agent="a_2").to_numpy()
        np.testing.assert_allclose(observation[:, 0], (2000 + episode) / 10)
        np.testing.assert_allclose(observation[:, 1], part.rows["t"][part.rows["episode"] == episode] / 10, rtol=1e-6)
        assert np.array_equal(part.frame(episode=episode, t=2), first.frame(episode=episode, t=2))
    expected = first.episodes.loc[[3, 4, 17], ["a_0", "a_2", "seed", "n_steps"]]
    assert part.episodes[["a_0", "a_2", "seed", "n_steps"]].equals(expected)
    assert part["a/actor/hidden_1"].dtype_stored == "bfloat16" and part.feature_names("a") == ["seed", "t", "agent"]
    assert part.settings["every"] == 2 and part.settings["episodes"] == 3
    assert json.loads(part.file.attrs["derived"])["of"] == "first.h5"


def test_everything_can_be_extracted(first: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marlnb.recording.file.layout.MAX_BLOCK_ROWS", 8)
    copy = mnb.extract(first, tmp_path / "copy.h5")
    assert sorted(row_paths(copy.file)) == sorted(row_paths(first.file))
    for path in row_paths(first.file):
        assert np.array_equal(copy._array(path).to_numpy(), first._array(path).to_numpy(), equal_nan=True), path
    assert copy.episodes.equals(first.episodes) and copy.checkpoints.equals(first.checkpoints)


def test_merged_recordings_follow_each_other(run: Run, first: Recording, tmp_path: Path) -> None:
    both = mnb.merge([first, run.recordings["second"]], tmp_path / "both.h5")
    second = Recording.open(run.recordings["second"])
    assert len(both) == len(first) + len(second) and both.episodes.index.tolist() == list(range(40)) and both.complete
    assert both.episodes["seed"].tolist() == [*range(2000, 2020), *range(5000, 5020)]
    for path in row_paths(first.file):
        if path != "steps/episode":
            expected = np.concatenate([first._array(path).to_numpy(), second._array(path).to_numpy()])
            assert np.array_equal(both._array(path).to_numpy(), expected, equal_nan=True), path
    observation = both.steps("a", "observation").sel(agent="a_0").to_numpy()[:, 0]
    np.testing.assert_allclose(observation * 10, both.episodes["seed"].to_numpy()[both.rows["episode"]], rtol=1e-6)
    assert both.checkpoints["row_stop"].tolist() == [len(both)]
    assert np.array_equal(both.frame(episode=25, t=1), second.frame(episode=5, t=1))


def test_checkpoints_stay_with_their_rows(first: Recording, tmp_path: Path) -> None:
    other = mnb.extract(first, tmp_path / "other.h5", episodes=slice(0, 5))
    other.close()
    again = mnb.extract(first, tmp_path / "again.h5")
    again.close()
    import h5py

    with h5py.File(other.path, "r+") as file:
        file["checkpoints/iteration"][0], file["checkpoints/sha256"][0] = 99, b"99"
    with h5py.File(again.path, "r+") as file:
        file["episodes/seed"][:] += 100
    both = mnb.merge([first, other.path, again.path], tmp_path / "both.h5")
    n, m = len(first), int(first.episodes["length"][:5].sum())
    table = both.checkpoints
    assert table["iteration"].tolist() == [7, 99, 7]
    assert table["row_start"].tolist() == [0, n, n + m] and table["row_stop"].tolist() == [n, n + m, 2 * n + m]
    part = mnb.extract(both, tmp_path / "part.h5", episodes=[19, 20, 21, 40])
    lengths = both.episodes.loc[[19, 20, 21, 40], "length"].cumsum().tolist()
    assert part.checkpoints["iteration"].tolist() == [7, 99, 7]
    assert part.checkpoints["row_stop"].tolist() == [lengths[0], lengths[2], lengths[3]]


def test_an_episode_is_not_merged_with_itself(run: Run, first: Recording, tmp_path: Path) -> None:
    """It could be in both training and test data."""
    some = mnb.extract(first, tmp_path / "some.h5", episodes=[3, 4])
    others = mnb.extract(first, tmp_path / "others.h5", episodes=[5, 6])
    with pytest.raises(RecordingError, match=r"first\.h5: 2 of its episodes are the same, .* record with another"):
        mnb.merge([first, some], tmp_path / "x.h5")
    assert mnb.merge([some, others], tmp_path / "y.h5").episodes["seed"].tolist() == [2003, 2004, 2005, 2006]
    sampled = [
        record(run, name=f"sampled_{n_envs}", episodes=3, n_envs=n_envs, explore=True, progress=False)
        for n_envs in (1, 2)
    ]
    assert len(mnb.merge(sampled, tmp_path / "z.h5").episodes) == 6  # under the same seeds, by other draws
    with pytest.raises(RecordingError, match="3 of its episodes are the same"):
        mnb.merge([sampled[0], sampled[0].path], tmp_path / "w.h5")


def test_recordings_of_other_environments_are_not_merged(run: Run, first: Recording, tmp_path: Path) -> None:
    options: dict[str, Any] = {"episodes": 2, "dtype": "bfloat16", "frames": True, "progress": False}
    for seed in (2000, 9000):  # the first recording's and another
        with (
            record(run, seed=seed, env=LivesConfig(shortest=5), name=f"longer_{seed}", **options) as other,
            pytest.raises(RecordingError, match="its environment has shortest=5, not shortest=3"),
        ):
            mnb.merge([first, other], tmp_path / "x.h5")


def test_what_resume_changes_is_no_difference(run: Run, first: Recording, tmp_path: Path) -> None:
    later, others = (tmp_path / name for name in ("later.h5", "others.h5"))
    for path, options in ((later, {"frames": 1, "device": "cuda"}), (others, {"seed": 1})):
        shutil.copy(run.recordings["second"], path)
        with h5py.File(path, "r+") as file:
            file.attrs["experiment"] = json.dumps(json.loads(file.attrs["experiment"]) | options)
    assert len(mnb.merge([first, later], tmp_path / "merged.h5").episodes) == 40
    with pytest.raises(RecordingError, match="experiment differs in seed"):
        mnb.merge([first, others], tmp_path / "x.h5")


def test_a_kill_after_the_last_step_leaves_no_second_name(first: Recording, tmp_path: Path) -> None:
    """The temporary name of a file that has its name already goes when the command is given again."""
    path = tmp_path / "part.h5"
    mnb.extract(first, path, episodes=[0]).close()
    os.link(path, temporary := tmp_path / f".part.h5.new-{2**22 + 1}")  # no process has this number
    with pytest.raises(RecordingError, match="already exists"):
        mnb.extract(first, path, episodes=[0])
    assert path.exists() and not temporary.exists()


def test_refusals_name_what_is_wrong(run: Run, first: Recording, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    fewer = mnb.extract(first, tmp_path / "fewer.h5", sites="a/*")
    for single, name in ((first, r".*first\.h5"), ("a.h5", r"a\.h5")):
        with pytest.raises(RecordingError, match=f"needs a list of recordings or their paths; got one, '{name}'"):
            mnb.merge(single, path)  # type: ignore[arg-type]
    with pytest.raises(RecordingError, match="missing in one or differ in shape: activations/b/actor"):
        mnb.merge([first, fewer], path)
    sparse = mnb.extract(first, tmp_path / "sparse.h5", every=3)
    with pytest.raises(RecordingError, match=r"sparse\.h5 cannot be merged with .*first\.h5: every differs"):
        mnb.merge([first, sparse], path)
    with pytest.raises(RecordingError, match=r"every must be a multiple of 3, .*; got 4"):
        mnb.extract(sparse, path, every=4)
    with pytest.raises(RecordingError, match="no episode 77 in this recording; valid: 0 to"):
        mnb.extract(first, path, episodes=[1, 77])
    with pytest.raises(SiteError, match=r"a/actor/hidden_9"):
        mnb.extract(first, path, sites="a/actor/hidden_9")
    with pytest.raises(RecordingError, match="did you mean 'reward'"):
        mnb.extract(first, path, fields="rewards")
    with pytest.raises(RecordingError, match="already exists"):
        mnb.extract(first, fewer.path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fewer.h5", "sparse.h5"]
