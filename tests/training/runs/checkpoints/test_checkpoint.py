from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from marlnb.errors import CheckpointError
from marlnb.training.runs.checkpoints.checkpoint import (
    REPLACED,
    TEMPORARY,
    Checkpoint,
    best_checkpoint,
    competing_groups,
    list_checkpoints,
    returns_text,
    rotate_checkpoints,
    save_checkpoint,
)
from marlnb.training.runs.checkpoints.state_file import write_state


def _save(folder: Path, iteration: int, score: float | None = None, value: float = 0.0, **returns: float) -> Checkpoint:
    state = {"w": torch.full((4,), value)}
    of_groups = returns or ({} if score is None else {"speaker": score, "listener": score})
    return save_checkpoint(folder, state, iteration=iteration, frames=10 * iteration, returns=of_groups)


def test_what_is_saved_is_listed_and_loaded(tmp_path: Path) -> None:
    saved = [_save(tmp_path / "c", iteration, value=iteration) for iteration in (9, 10, 100)]
    assert list_checkpoints(tmp_path / "c") == saved
    assert saved[1].frames == 100 and saved[1].load()["w"].tolist() == [10.0] * 4
    assert Checkpoint.open(saved[2].path) == saved[2]


def test_the_same_content_has_the_same_hash(tmp_path: Path) -> None:
    assert (
        _save(tmp_path / "a", 1).sha256 == _save(tmp_path / "b", 1).sha256 != _save(tmp_path / "c", 1, value=1).sha256
    )


def test_rotation_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for iteration, score in enumerate([None, -5.0, -1.0, -3.0, -4.0, -2.0]):
        _save(tmp_path, iteration, score)
    rotate_checkpoints(tmp_path, 2)
    assert [checkpoint.iteration for checkpoint in list_checkpoints(tmp_path)] == [2, 4, 5]
    best = best_checkpoint(list_checkpoints(tmp_path))
    assert best is not None and best.iteration == 2


def test_rotation_keeps_the_best_of_each_group_that_is_rewarded_differently(tmp_path: Path) -> None:
    for iteration, (hunter, prey) in enumerate([(0.0, -20.0), (9.0, -9.0), (1.0, -1.0), (5.0, -5.0), (6.0, -6.0)]):
        _save(tmp_path, iteration, hunter=hunter, prey=prey)
    rotate_checkpoints(tmp_path, 1)
    left = list_checkpoints(tmp_path)
    assert [checkpoint.iteration for checkpoint in left] == [1, 2, 4]
    assert left[0].score is None and competing_groups(left) == ("hunter", "prey")
    best = {group: best_checkpoint(left, group) for group in ("hunter", "prey")}
    assert best == {"hunter": left[0], "prey": left[1]}
    assert returns_text(left[0], ["hunter"]) == "hunter 9.00, best; prey -9.00"


def test_a_checkpoint_of_an_earlier_version_has_the_returns_of_its_iteration(tmp_path: Path) -> None:
    """It holds the mean over groups, which says nothing about hunters and prey."""
    for iteration in (1, 2):
        (tmp_path / "checkpoints" / str(iteration)).mkdir(parents=True)
        header = {"iteration": iteration, "frames": 10, "score": 3.0}
        write_state(tmp_path / "checkpoints" / str(iteration), {}, header)
    rows = [{"iteration": 2, "returns": {"hunter": 9.0, "prey": -3.0}, "evaluation": {}}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = list_checkpoints(tmp_path / "checkpoints")
    assert first.score == 3.0 and second.score is None and second.returns == {"hunter": 9.0, "prey": -3.0}


def test_keeping_zero_keeps_all(tmp_path: Path) -> None:
    for iteration in range(5):
        _save(tmp_path, iteration)
    rotate_checkpoints(tmp_path, 0)
    assert len(list_checkpoints(tmp_path)) == 5


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    _save(tmp_path, 3, value=1)
    saved = _save(tmp_path, 3, value=2)
    assert saved.load()["w"].tolist() == [2.0] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_what_a_killed_writer_left_is_removed_and_what_it_replaced_returns(tmp_path: Path) -> None:
    _save(tmp_path, 3)
    (tmp_path / "3").rename(tmp_path / f"{REPLACED}3")
    (tmp_path / f"{TEMPORARY}4").mkdir()
    (tmp_path / f"{TEMPORARY}4" / "tensors.bin").write_bytes(b"half")
    _save(tmp_path, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "5"]


def test_a_damaged_checkpoint_is_not_listed_and_says_why_when_opened(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    (_save(tmp_path, 2).path / "manifest.json").write_text("{")
    assert [checkpoint.iteration for checkpoint in list_checkpoints(tmp_path)] == [1]
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        Checkpoint.open(tmp_path / "2")


def test_a_full_disk_leaves_the_earlier_checkpoints_whole(tmp_path: Path) -> None:
    """The kernel refuses files beyond 64 KiB, as a full disk would."""
    code = """
import resource, sys, torch
from pathlib import Path
from marlnb.errors import CheckpointError
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
folder = Path(sys.argv[1])
save_checkpoint(folder, {"w": torch.ones(10)}, iteration=1, frames=1, returns={})
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    save_checkpoint(folder, {"w": torch.ones(100_000)}, iteration=2, frames=2, returns={})
except CheckpointError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "checkpoint 2 cannot be written" in done.stdout and "complete checkpoints there: 1" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert list_checkpoints(tmp_path)[0].load()["w"].sum() == 10
