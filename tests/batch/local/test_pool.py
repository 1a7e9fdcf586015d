"""Members that are dealt out, and that others on this machine leave alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marlnb.batch.local.pool import Pool, lock_folder


def test_the_least_used_are_dealt_out_and_given_back(tmp_path: Path) -> None:
    pool = Pool("core", ["0", "1", "2"], tmp_path)
    assert pool.acquire(2, share=False) == ["0", "1"]
    assert pool.acquire(2, share=False) is None
    assert pool.acquire(2, share=True) == ["2", "0"]
    assert pool.acquire(1, share=True) == ["1"]  # used once, as 2 is; 0 twice
    pool.release(["2"])
    assert pool.acquire(1, share=False) == ["2"]


def test_what_another_has_taken_is_left_until_it_gives_it_back_or_must_be_shared(tmp_path: Path) -> None:
    mine, other = (Pool("core", ["0", "1", "2"], tmp_path) for _ in range(2))
    assert other.acquire(1, share=False) == ["0"]
    assert mine.acquire(3, share=False) is None
    assert other.acquire(1, share=False) == ["1"]  # what was not enough was not kept
    assert mine.acquire(3, share=True) == ["2", "0", "1"]
    other.release(["0", "1"])
    mine.release(["2", "0", "1"])
    assert other.acquire(3, share=False) == ["0", "1", "2"]
    assert Pool("gpu", ["0"], tmp_path).acquire(1, share=False) == ["0"]  # another kind


def test_a_lock_folder_that_is_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = lock_folder()
    assert folder == tmp_path / f"marlnb-{os.getuid()}" and folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert lock_folder() is None
    assert Pool("core", ["0"]).acquire(1, share=False) == ["0"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_lock_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    mine, other = (Pool("core", ["0", "1"], folder) for _ in range(2))
    folder.rmdir()
    assert mine.acquire(1, share=False) == ["0"] and folder.stat().st_mode & 0o777 == 0o700
    assert other.acquire(1, share=False) == ["1"]
    elsewhere = Pool("core", ["0"], tmp_path / "not" / "there")  # it cannot be made again: no locks
    assert elsewhere.acquire(1, share=False) == ["0"]
    elsewhere.release(["0"])
