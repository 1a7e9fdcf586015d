"""Kills, refused writes and a clock set back, at some of the calls that write; `make crash-test` tries each group."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import h5py
import pytest

from marlnb.recording.file import inspection, structure
from tests.faults.__main__ import read_log
from tests.faults.groups import KINDS, groups_of, planned
from tests.faults.processes import compiler, run_with_library
from tests.faults.trials import digest_of
from tests.recording.forked_walks import walk_in_forks

SAMPLES = (
    "--scenario train --scenario evolve --scenario league --kind kill --kind full --every 110",
    "--scenario record --kind kill --kind full --every 380",
    "--scenario attribute --kind ENOSPC --first 30 --every 2",
)


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc, gcc or clang) for tests/faults/faults.c")
def test_samples_of_the_crash_matrix(tmp_path: Path) -> None:
    """One process makes all of these attempts: it imports torch once."""
    script = "import sys\nfrom tests.faults.__main__ import main\nsys.exit(max(main(s.split()) for s in sys.argv[1:]))"
    assert run_with_library(["-c", script, *SAMPLES], tmp_path) == 0


def test_calls_that_do_the_same_to_the_same_sort_of_file_are_a_group() -> None:
    block = ["pwrite /r.h5", "fsync /r.h5"]
    calls = ["open /r.h5", *block * 3, "write /checkpoints/1/a", "write /checkpoints/1/a", "write /checkpoints/22/a"]
    assert groups_of(calls) == [[1], [2], [3, 5, 7], [4, 6], [8, 9, 10]]
    assert groups_of(["rename /snapshots/" + "ab12" * 16, "rename /snapshots/" + "cd34" * 16]) == [[1, 2]]
    assert groups_of(["mkdir /checkpoints/.writing-3", "mkdir /checkpoints/.writing-deleted-3"]) == [[1, 2]]


def test_the_first_call_of_each_group_comes_first_then_the_last_then_two_between() -> None:
    calls = {"train": ["open /a", *["write /a"] * 10, "unlink /a"], "job": ["mkdir /b"]}
    first = [("train", "kill", 1), ("train", "kill", 2), ("train", "kill", 12), ("job", "kill", 1)]
    assert planned(calls, ["kill"]) == [*first, *(("train", "kill", at) for at in (11, 5, 8))]
    assert {at for _, _, at in planned(calls, ["kill"], every=1)} == set(range(1, 13))
    assert sorted(planned(calls, ["kill"], every=5, first=2)) == [("train", "kill", at) for at in (2, 7, 12)]


def test_faults_that_do_the_same_at_a_call_are_tried_once() -> None:
    calls = {"train": ["open /a", "write /a", "unlink /a"]}
    numbers = {kind: [at for _, _, at in planned(calls, [kind])] for kind in KINDS}
    assert numbers["torn"] == numbers["full"] == [2]
    assert numbers["ENOSPC"] == numbers["EIO"] == numbers["EDQUOT"] == [1, 2]
    assert numbers["kill"] == numbers["EROFS"] == numbers["clock"] == [1, 2, 3]


def test_an_interrupted_test_continues(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"scenario": "train", "kind": "kill", "at": 6, "problems": ["hang"]}\n{"scenario": "tr')
    assert read_log(log) == {("train", "kill", 6): ["hang"]} and len(log.read_text().splitlines()) == 1


def test_numbers_of_processes_do_not_distinguish_what_faults_left(tmp_path: Path) -> None:
    def digest(name: str, content: str, pid: int = 0) -> str:
        folder = tmp_path / f"{name}{content}"
        folder.mkdir()
        (folder / name).write_text(content)
        return digest_of(folder, pid)

    assert digest(".run.h5.new-1234", "a") == digest(".run.h5.new-56789", "a") != digest(".run.h5.new-1234", "b")
    assert digest("0001.h5", "a") != digest("0002.h5", "a")
    assert digest("status.json", "by 1234", pid=1234) == digest("status.json", "by 77", pid=77)
    assert digest("status.json", "of 1234", pid=1234) != digest("status.json", "of 77")


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc, gcc or clang) for tests/faults/faults.c")
def test_a_command_writes_the_same_times_whenever_it_runs(tmp_path: Path) -> None:
    script = (
        "import sys, time, h5py\n"
        "from pathlib import Path\n"
        "from tests.faults.processes import Fault, run_with_fault\n"
        "folder = Path(sys.argv[1])\n"
        "def write():\n"
        "    with h5py.File(folder / 'a.h5', 'w') as file:\n"
        "        file.create_dataset('x', data=[1.0], track_times=True)\n"
        "    return [time.time(), (folder / 'a.h5').read_bytes().hex()]\n"
        "first = run_with_fault(write, Fault(0), folder, counted=True)\n"
        "time.sleep(1.1)\n"
        "second = run_with_fault(write, Fault(0), folder, counted=True)\n"
        "assert first.kind == 'done' and first.text == second.text, (first, second)\n"
    )
    assert run_with_library(["-c", script, str(tmp_path)], tmp_path) == 0


def test_a_fork_inspects_a_file_as_a_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, linked = tmp_path / "good.h5", tmp_path / "linked.h5"
    for path in (good, linked):
        with h5py.File(path, "w") as file:
            file["x"] = [1.0, 2.0]
    with h5py.File(linked, "r+") as file:
        file["y"] = h5py.SoftLink("/x")
    by_process = inspection._run_walks([good, linked], damaged=False)
    monkeypatch.setattr(inspection, "subprocess", None)
    walk_in_forks()
    assert inspection._run_walks([good, linked], damaged=False) == by_process
    assert [bool(result["problem"]) for result in by_process] == [False, True]
    monkeypatch.setattr(structure, "inspect", lambda path, *, damaged: os.kill(os.getpid(), signal.SIGKILL))
    crashed = inspection._run_walks([good], damaged=False)[0]
    assert "crashed while reading its structure (signal 9)" in crashed["problem"]
