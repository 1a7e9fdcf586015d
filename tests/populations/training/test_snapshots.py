"""Snapshots on disk that do not belong to the environment, and a league that cannot start from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from marlnb.errors import CheckpointError
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

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
