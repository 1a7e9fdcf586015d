from __future__ import annotations

import json
import math
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from marlnb.errors import CheckpointError
from marlnb.training.runs.checkpoints.manifest import MANIFEST, manifest_digest
from marlnb.training.runs.checkpoints.state_file import TENSORS, read_state, write_state
from marlnb.training.runs.files import is_damage
from tests.training.another_user import shared_folder, without_root

STATE: dict[str, Any] = {
    "weights": {"w": torch.randn(3, 4), "half": torch.randn(5).bfloat16(), "flags": torch.tensor([True, False, True])},
    "optimizer": {0: {"step": torch.tensor(3.0)}, 1: {"lr": 3e-4, "betas": (0.9, 0.999), "name": "ä", "none": None}},
    "empty": torch.empty(0, 3),
    "view": torch.arange(12).reshape(3, 4).T,
    "numbers": [2**70, -1, True, math.inf, -math.inf, 0.1],
    "$odd": 1,
    "rng": torch.get_rng_state(),
}


def _assert_equal(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype and torch.equal(actual, expected)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key, value in expected.items():
            _assert_equal(actual[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected):
            _assert_equal(left, right)
    else:
        assert actual == expected


def test_a_state_comes_back_with_every_type_and_bit(tmp_path: Path) -> None:
    write_state(tmp_path, STATE, {"iteration": 3})
    _assert_equal(read_state(tmp_path), STATE)


def test_nan_comes_back(tmp_path: Path) -> None:
    write_state(tmp_path, {"x": math.nan}, {})
    assert math.isnan(read_state(tmp_path)["x"])


def test_a_state_loaded_owns_its_tensors(tmp_path: Path) -> None:
    write_state(tmp_path, {"a": torch.zeros(3), "b": torch.zeros(3)}, {})
    state = read_state(tmp_path)
    state["a"] += 1
    assert state["b"].sum() == 0


def test_objects_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state\.learner\.thing is a object"):
        write_state(tmp_path, {"learner": {"thing": object()}}, {})


@pytest.mark.parametrize("name", [MANIFEST, TENSORS])
def test_every_damaged_byte_is_detected(tmp_path: Path, name: str) -> None:
    write_state(tmp_path, {"w": torch.randn(40), "n": [1, 2.5, "text"]}, {"iteration": 3})
    whole = (tmp_path / name).read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"damaged|no readable|does not have the format"):
            read_state(tmp_path)
    (tmp_path / name).write_bytes(whole)
    read_state(tmp_path)


@pytest.mark.parametrize("name", [MANIFEST, TENSORS])
@pytest.mark.parametrize("kept", [0, 1, 50])
def test_truncated_files_are_refused(tmp_path: Path, name: str, kept: int) -> None:
    write_state(tmp_path, STATE, {})
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:kept])
    with pytest.raises(CheckpointError):
        read_state(tmp_path)


def test_damage_names_what_can_be_done(tmp_path: Path) -> None:
    for name in ("9", "10", "11", ".writing-12"):
        (tmp_path / name).mkdir()
    write_state(tmp_path / "10", STATE, {})
    data = bytearray((tmp_path / "10" / TENSORS).read_bytes())
    data[-1] ^= 1
    (tmp_path / "10" / TENSORS).write_bytes(data)
    others = "give the iteration of another one: 9, 11"
    with pytest.raises(CheckpointError, match=rf"tensors.bin is damaged: its content does not match .*{others}"):
        read_state(tmp_path / "10")
    (tmp_path / "10" / TENSORS).write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=rf"damaged: it has {len(data) - 1:,} of {len(data):,} bytes; .*{others}"):
        read_state(tmp_path / "10")


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=MANIFEST):
        read_state(tmp_path)
    write_state(tmp_path, STATE, {})
    (tmp_path / TENSORS).unlink()
    with pytest.raises(CheckpointError, match=TENSORS):
        read_state(tmp_path)


@pytest.mark.parametrize("name", [MANIFEST, TENSORS])
def test_a_file_that_cannot_be_read_is_not_damage(name: str) -> None:
    with shared_folder() as folder:
        write_state(folder, STATE, {})
        (folder / name).chmod(0)
        with without_root(), pytest.raises(CheckpointError, match=f"{name}.*Permission denied") as caught:
            read_state(folder)
        assert not is_damage(caught.value)
        (folder / name).unlink()
        with pytest.raises(CheckpointError, match=f"{name}.*No such file") as caught:
            read_state(folder)
        assert is_damage(caught.value)


def test_more_bytes_than_were_written_are_damage_and_more_than_the_memory_are_not(tmp_path: Path) -> None:
    write_state(tmp_path, STATE, {})
    os.truncate(tmp_path / TENSORS, size := 4 * 2**30)  # a sparse file
    with pytest.raises(CheckpointError, match=f"it has {size:,} bytes; at most") as caught:
        read_state(tmp_path)
    assert is_damage(caught.value)
    _forge(tmp_path, files={TENSORS: {"sha256": "", "size_bytes": size}})
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + 2**29, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="has no memory") as caught:
            read_state(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not is_damage(caught.value)


def _forge(folder: Path, **changes: Any) -> None:
    """A manifest changed by someone who also makes its hash right."""
    manifest = json.loads((folder / MANIFEST).read_text()) | changes
    manifest["sha256"] = manifest_digest({key: value for key, value in manifest.items() if key != "sha256"})
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "float32", "shape": [10**9], "offset": 0, "size_bytes": 4 * 10**9},
        {"dtype": "float32", "shape": [4], "offset": -16, "size_bytes": 16},
        {"dtype": "float32", "shape": [-1, -4], "offset": 0, "size_bytes": 16},
        {"dtype": "float32", "shape": [3], "offset": 0, "size_bytes": 16},
        {"dtype": "float32", "shape": [1.0], "offset": 0, "size_bytes": 4},
        {"dtype": "object", "shape": [2], "offset": 0, "size_bytes": 16},
        {"dtype": "float32", "shape": "4", "offset": 0, "size_bytes": 16},
        {"dtype": "uint8", "shape": [{"$tuple": [3, [2147483648] * 1000]}], "offset": 0, "size_bytes": 16},
        {"dtype": "uint8", "shape": [2] * 3000, "offset": 0, "size_bytes": 16},
        {},
        None,
    ],
)
def test_forged_tables_are_refused(tmp_path: Path, entry: Any) -> None:
    write_state(tmp_path, {"w": torch.zeros(4)}, {})
    _forge(tmp_path, tensors=[entry])
    with pytest.raises(CheckpointError, match="malformed") as caught:
        read_state(tmp_path)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("tree", [{"w": {"$tensor": 7}}, {"w": {"$dict": 3}}, [1], {"w": {"$dict": [[{"a": 1}, 2]]}}])
def test_forged_trees_are_refused(tmp_path: Path, tree: Any) -> None:
    write_state(tmp_path, {"w": torch.zeros(4)}, {})
    _forge(tmp_path, tree=tree)
    with pytest.raises(CheckpointError, match="malformed"):
        read_state(tmp_path)


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path, {"w": torch.zeros(4)}, {})
    (tmp_path / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(CheckpointError):
        read_state(tmp_path)


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    write_state(tmp_path, {"w": torch.zeros(4)}, {})
    for name in (MANIFEST, TENSORS):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError):
        read_state(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_bytes_that_are_no_booleans_become_booleans(tmp_path: Path) -> None:
    write_state(tmp_path, {"raw": torch.tensor([0, 1, 255], dtype=torch.uint8)}, {})
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest["tensors"][0]["dtype"] = "bool"
    _forge(tmp_path, tensors=manifest["tensors"])
    assert read_state(tmp_path)["raw"].tolist() == [False, True, True]
