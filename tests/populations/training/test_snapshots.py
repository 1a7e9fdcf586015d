"""Snapshots on disk that do not belong to the environment, and a league that cannot start from them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from marlnb.errors import CheckpointError
from marlnb.experiment import Experiment
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.train import train
from tests.populations.training.league.test_loop import RPS

GROUP = GroupSpec("player", ("a", "b"), ObservationSpec((3,)), ActionSpec("discrete", (2,)))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (replace(GROUP, observation=ObservationSpec((4,))), r"observation \[3\].*toy has.*observation \[4\]"),
        (replace(GROUP, action=ActionSpec("discrete", (5,))), r"'discrete', \[2\].*toy has.*'discrete', \[5\]"),
        (replace(GROUP, agents=("a", "b", "c")), r"agents 2.*toy has agents 3"),
        (replace(GROUP, name="other"), r"group 'player'.*toy has no such group"),
    ],
)
def test_a_snapshot_of_other_spaces_is_named_and_stays(tmp_path: Path, group: GroupSpec, message: str) -> None:
    weights = {"player": {"w": torch.arange(3.0)}}
    store = SnapshotStore(tmp_path, EnvSpec("toy", (GROUP,)))
    sha256 = store.write("main_0", 8, weights)
    with pytest.raises(CheckpointError, match=rf"the snapshot main_0@0 was made for .*{message}"):
        SnapshotStore(tmp_path, EnvSpec("toy", (group,))).read("main_0@0", sha256)
    assert torch.equal(store.read("main_0@0", sha256)["player"]["w"], weights["player"]["w"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "league").touch()
    store = SnapshotStore(tmp_path / "league", EnvSpec("toy", (GROUP,)))
    with pytest.raises(
        CheckpointError, match=r"a snapshot of main_0 cannot be written to .*/league/snapshots: Not a dir"
    ):
        store.write("main_0", 8, {"player": {"w": torch.arange(3.0)}})


def test_a_snapshot_that_cannot_be_adopted_names_the_disk_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, spec = tmp_path / "theirs", EnvSpec("toy", (GROUP,))
    sha256 = SnapshotStore(theirs, spec).write("main_0", 8, {"player": {"w": torch.arange(3.0)}})
    store = SnapshotStore(tmp_path / "ours", spec)

    def refuse(number: int) -> Callable[..., None]:
        def raise_error(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        return raise_error

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse(errno.EXDEV))
        for number, text in ((errno.ENOSPC, r"is full: .* free"), (errno.EIO, "does not work")):
            patch.setattr(shutil, "copy2", refuse(number))
            with pytest.raises(
                CheckpointError, match=f"{sha256} of {theirs} cannot be copied to .*: the disk .* {text}"
            ):
                store.adopt(theirs, sha256)
            assert not list(store.folder.iterdir())
    with pytest.raises(CheckpointError, match=r"cannot be copied to .*: No such file or directory"):
        store.adopt(theirs, "0" * 64)
    store.adopt(theirs, sha256)
    assert torch.equal(store.read("main_0@0", sha256)["player"]["w"], torch.arange(3.0))


def test_a_league_that_cannot_write_its_first_snapshot_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command would be refused, because the folder exists."""

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", is_full)
    with pytest.raises(CheckpointError, match=r"a snapshot of main_0@0 cannot be written to .*: the disk .* is full"):
        train(Experiment.compose(*RPS, "frames=64"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_the_newest_snapshots_are_kept_whatever_the_clock_says(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, EnvSpec("toy", (GROUP,)))
    hashes = [store.write("main_0", 8 * k, {"player": {"w": torch.full((3,), float(k))}}) for k in range(4)]
    for k, sha256 in enumerate(hashes):  # the clock was set back after each
        os.utime(store.path(sha256), (1e9 - k, 1e9 - k))
    store.keep_newest(2, last=hashes[3])
    assert {path.name for path in store.folder.iterdir()} == set(hashes[2:])
    store.keep_newest(1, last=hashes[2])  # of a training run that resumed earlier
    assert {path.name for path in store.folder.iterdir()} == {hashes[2]}
