from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from marlnb.disk import problem_of, write_atomically, writing
from marlnb.errors import DiskError


@pytest.mark.parametrize(
    ("n_files", "n_free", "end"),
    [
        (1000, 0, "64 MB free, but it has no inode left for another file (`df -i` shows it), 1 kB needed"),
        (1000, 1, "64 MB free, 1 kB needed"),
        (0, 0, "64 MB free, 1 kB needed"),  # a file system that does not count them
    ],
)
def test_a_disk_with_space_but_without_inodes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_files: int, n_free: int, end: str
) -> None:
    disk = SimpleNamespace(f_bavail=64_000, f_frsize=1000, f_files=n_files, f_favail=n_free)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    problem = problem_of(OSError(errno.ENOSPC, "no space"), tmp_path / "a", needed_bytes=1000)
    assert problem.startswith("the disk /") and problem.endswith(f" is full: {end}")


@pytest.mark.parametrize(
    ("needed_bytes", "n_blocks", "end"),
    [
        (0, 0, "0 B free, at least 4.1 kB needed"),  # unknown: any write needs a block
        (700, 0, "0 B free, 700 B needed"),
        (0, 5, "20.5 kB free, more is needed"),
    ],
)
def test_a_full_disk_names_the_space_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed_bytes: int, n_blocks: int, end: str
) -> None:
    disk = SimpleNamespace(f_bavail=n_blocks, f_frsize=4096, f_files=0, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    path = tmp_path / "a"
    problem = problem_of(OSError(errno.ENOSPC, "no space"), path, needed_bytes)
    assert problem.endswith(f" is full: {end}")
    with pytest.raises(DiskError, match=problem) as raised, writing(path, needed_bytes=needed_bytes):
        raise OSError(errno.ENOSPC, "no space")
    assert problem_of(raised.value, tmp_path) == problem  # as it was said first


def test_a_kill_within_a_write_in_place_leaves_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a disk is full, a shorter text replaces a longer one in two calls."""
    path = tmp_path / "status.json"
    path.write_text(json.dumps({"reason": "a longer text"}))

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(os, "fsync", no_space)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(os, "ftruncate", killed)
        write_atomically(path, '{"a": 1}\n', in_place=True)
    assert json.loads(path.read_text()) == {"a": 1}
    write_atomically(path, '{"b": 2}\n', in_place=True)
    assert path.read_text() == '{"b": 2}\n'
