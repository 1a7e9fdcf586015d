from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.full_disk import mounted, wrong_figures
from tests.faults.processes import compiler


def _can_mount(folder: Path) -> bool:
    try:
        with mounted(folder):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc, gcc or clang) for tests/faults/faults.c")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_a_training_and_a_repair_on_a_disk_that_is_full(tmp_path: Path) -> None:
    if not _can_mount(tmp_path / "disk"):
        pytest.skip("no file system can be mounted here")
    scenarios = [word for name in ("train", "repair") for word in ("--scenario", name)]
    words = (*scenarios, "--growth", "200", "--late")
    done = subprocess.run([sys.executable, "-m", "tests.faults.full_disk", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_figures_that_contradict_a_full_disk_are_noticed() -> None:
    assert wrong_figures("the disk /a is full: 410 kB free, 304 kB needed")
    assert not wrong_figures("the disk /a is full: 410 kB free, 1.35 MB needed")
    assert not wrong_figures("")
