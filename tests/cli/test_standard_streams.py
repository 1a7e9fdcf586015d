"""Standard streams that are closed, as by a daemon, or whose reader has gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MARLNB = f"{sys.executable} -m marlnb"
SMALL = (
    "env=mpe/simple_spread algorithm=ippo n_envs=4 rollout_steps=8 frames=64 algorithm.epochs=1 threads=1 "
    "algorithm.minibatch_frames=32 model.hidden=[8] evaluation_episodes=4"
)


def test_commands_work_with_closed_streams(tmp_path: Path) -> None:
    line = f"{MARLNB} train {SMALL} run=run <&- >&- 2>&- && {MARLNB} evaluate run --episodes 2 --json 2>&-"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["episodes"] == 2
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "complete"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"], ["list", "envs"]])
def test_a_reader_that_has_gone_is_no_traceback(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "marlnb", *words], stdout=write, stderr=subprocess.PIPE, timeout=200)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
