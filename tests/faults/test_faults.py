"""Kills, refused writes and a clock set back, at a sample of the calls that write; `make crash-test` tries all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.__main__ import planned, read_log
from tests.faults.processes import compiler


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc, gcc or clang) for tests/faults/faults.c")
@pytest.mark.parametrize(
    "sample",
    [
        "--scenario train --scenario evolve --scenario league --kind kill --kind full --every 110",
        "--scenario record --kind kill --kind full --every 380",
    ],
)
def test_a_sample_of_the_crash_matrix(sample: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.faults", *sample.split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_calls_far_apart_come_first_and_an_interrupted_test_continues(tmp_path: Path) -> None:
    attempts = planned({"train": 27, "job": 2}, ["kill"], every=1, first=1)
    numbers = [at for name, _, at in attempts if name == "train"]
    assert numbers[:10] == [1, 26, 6, 11, 16, 21, 2, 7, 12, 17] and sorted(numbers) == list(range(1, 28))
    assert [name for name, _, _ in attempts[:3]] == ["train", "train", "job"]
    assert planned({"train": 7}, ["kill"], every=3, first=2) == [("train", "kill", 2), ("train", "kill", 5)]
    log = tmp_path / "log"
    log.write_text('{"scenario": "train", "kind": "kill", "at": 6, "problems": ["hang"]}\n{"scenario": "tr')
    assert read_log(log) == {("train", "kill", 6): ["hang"]} and len(log.read_text().splitlines()) == 1
