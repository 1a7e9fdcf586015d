"""Work that is done once, however often and by however many processes it is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import marlnb as mnb
from marlnb.errors import RunError


def test_it_is_made_once(tmp_path: Path) -> None:
    calls = []

    def make(path: Path) -> None:
        calls.append(path)
        path.write_text("made")

    for _ in range(3):
        path = mnb.cached(tmp_path / "run", "data.csv", make)
        assert path == tmp_path / "run" / "cache" / "data.csv" and path.read_text() == "made"
    assert len(calls) == 1 and calls[0] != path
    assert (tmp_path / "run" / "cache").stat().st_mode & 0o077 == 0


def test_a_folder_is_cached_as_well(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "part").write_text("1")

    assert (mnb.cached(tmp_path, "set", make) / "part").read_text() == "1"


def test_one_that_fails_leaves_nothing_and_is_made_again(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise ValueError("the server is away")

    with pytest.raises(ValueError, match="the server is away"):
        mnb.cached(tmp_path, "data", fail)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".data.lock"]
    assert mnb.cached(tmp_path, "data", lambda path: path.write_text("whole")).read_text() == "whole"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\nb"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="invalid name"):
        mnb.cached(tmp_path, name, lambda path: path.touch())
    with pytest.raises(RunError, match="created nothing"):
        mnb.cached(tmp_path, "x", lambda path: None)


SLOW = """
import sys, time
from pathlib import Path
from marlnb.training.runs.cache import cached
folder = Path(sys.argv[1])
def make(path):
    path.mkdir()
    (path / "half").touch()
    with open(folder / "calls", "a") as calls:
        calls.write("x")
    time.sleep(float(sys.argv[2]))
    (path / "whole").touch()
print(sorted(p.name for p in cached(folder, "data", make).iterdir()))
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SLOW, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True)


def test_one_that_is_killed_leaves_nothing_and_others_wait(tmp_path: Path) -> None:
    killed = start(tmp_path, 600)
    deadline = time.monotonic() + 120
    while not ((tmp_path / "calls").exists() and (tmp_path / "calls").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    others = [start(tmp_path, 0.3) for _ in range(3)]
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert {other.communicate(timeout=120)[0] for other in others} == {"['half', 'whole']\n"}
    assert (tmp_path / "calls").read_text() == "xx"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [".data.lock", "data"]
