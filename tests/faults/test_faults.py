"""Kills, refused writes and a clock set back, at a sample of the calls that write; `make crash-test` tries all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.processes import compiler


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc, gcc or clang) for tests/faults/faults.c")
@pytest.mark.parametrize(
    "sample",
    [
        "--scenario train --kind kill --kind full --every 80",
        "--scenario evolve --kind kill --every 60",
        "--scenario record --kind kill --kind full --every 380",
    ],
)
def test_a_sample_of_the_crash_matrix(sample: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.faults", *sample.split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
