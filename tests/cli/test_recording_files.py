"""The commands that mend, join, cut, complete and export recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.cli import main
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from tests.recording.runs import LivesConfig, make_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(tmp_path_factory.mktemp("files") / "run", LivesConfig(), centralised=False)
    with record(run, episodes=6, n_envs=2, sites="a/actor/hidden_1", progress=False) as recording:
        return recording.path


def test_extract_merge_and_repair(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part, both = str(tmp_path / "part.h5"), str(tmp_path / "both.h5")
    assert main(["extract", str(path), "--out", part, "--episodes", "0,3:5", "--every", "2", "--agents", "a_*"]) == 0
    assert capsys.readouterr().out.strip() == part
    rest = str(tmp_path / "rest.h5")
    assert main(["extract", str(path), "--out", rest, "--episodes", "1:3,5", "--every", "2", "--agents", "a_*"]) == 0
    capsys.readouterr()
    assert main(["merge", part, part, "--out", both]) == 2
    assert "3 of its episodes are the same" in capsys.readouterr().err
    assert main(["merge", rest, part, "--out", both]) == 0
    assert capsys.readouterr().out.strip() == both
    with Recording.open(both) as recording, Recording.open(path) as whole:
        assert recording.agents == ["a_0", "a_1", "a_2"] and len(recording.episodes) == 6
        assert recording.episodes["seed"].tolist() == [2001, 2002, 2005, 2000, 2003, 2004]
        seen = whole.steps("a", "observation").sel(episode=3).to_numpy()[::2]
        assert np.array_equal(recording.steps("a", "observation").sel(episode=4).to_numpy(), seen)
    assert main(["repair", both]) == 0
    assert "no damage found" in capsys.readouterr().out
    assert main(["extract", str(path), "--out", both]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["extract", str(path), "--out", "x.h5", "--episodes", "some"]) == 2
    assert "such as 0,3,10:20" in capsys.readouterr().err


def test_backfill_names_what_it_added(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backfill", str(path), "--sites", "b/actor/*"]) == 0
    assert capsys.readouterr().out.split() == ["b/actor/hidden_1", "b/actor/hidden_2", "b/actor/head"]
    assert main(["backfill", str(path), "--sites", "b/actor/*"]) == 2
    assert "already" in capsys.readouterr().err


def test_export_to_files(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pandas as pd
    import xarray as xr

    common = ["export", str(path), "--sites", "a/actor/hidden_1", "--fields", "reward", "--episodes", "1:3"]
    assert main([*common, "--to", "csv", "--out", str(tmp_path / "new" / "a.csv")]) == 0
    assert main([*common, "--to", "xarray", "--out", str(tmp_path / "a.nc")]) == 0
    assert main([*common, "--to", "nwb", "--out", str(tmp_path / "newer" / "a.nwb")]) == 0
    assert main(["export", str(path), "--to", "minari", "--out", str(tmp_path / "sets"), "--name", "lives-v1"]) == 0
    assert "lives-a_0-v1" in capsys.readouterr().out
    with Recording.open(path) as recording:
        units = recording["a/actor/hidden_1"].sel(episode=slice(1, 3)).to_numpy()
    table = pd.read_csv(tmp_path / "new" / "a.csv")
    first = table[table["agent"] == "a_1"]["actor/hidden_1[7]"].to_numpy()
    np.testing.assert_allclose(first, units[:, 1, 7], rtol=1e-6)
    with xr.open_dataset(tmp_path / "a.nc") as data:
        assert np.array_equal(data["a.actor.hidden_1"].values, units)
    assert (tmp_path / "newer" / "a.nwb").exists() and (tmp_path / "sets" / "lives-b_0-v1").is_dir()
    assert main([*common, "--to", "csv", "--out", str(tmp_path / "new" / "a.csv")]) == 2
    assert main([*common, "--to", "minari", "--out", str(tmp_path / "sets")]) == 2
    assert "select a part with `marlnb extract` first" in capsys.readouterr().err


def test_netcdf_holds_bytes_and_names_what_it_cannot_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import xarray as xr

    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    labels = {"shade": lambda step: (255 - step.t).to(torch.uint8), "large": lambda step: step.t + 2**40}
    with record(run, episodes=2, n_envs=2, sites=[], labels=labels, progress=False) as recording:
        shade = recording.label("shade").to_numpy()
        export = ["export", str(recording.path), "--to", "xarray", "--out", str(tmp_path / "a.nc"), "--fields"]
    assert shade.dtype == np.uint8 and shade.max() == 255
    assert main([*export, "shade"]) == 0
    with xr.open_dataset(tmp_path / "a.nc") as data:
        assert np.array_equal(data["labels.shade"].values, shade) and data["labels.shade"].attrs["stored"] == "uint8"
    (tmp_path / "a.nc").unlink()
    assert main([*export, "large"]) == 2
    message = capsys.readouterr().err
    assert "netCDF cannot hold all of this: " in message and "int64" in message and message.count("\n") == 1
    assert not (tmp_path / "a.nc").exists()
