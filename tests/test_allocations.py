from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marlnb.allocations import Allocation, _cgroup_limits, allocation
from marlnb.errors import ConfigError

SQUEUE = """#!/bin/sh
echo "$SLURM_TIME_FORMAT $*" >>"$CALLS"
{answer}
"""


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the scheduler's variables of the process that runs the tests."""
    for name in list(os.environ):
        if name.startswith(("SLURM", "CUDA_")) or name == "MARLNB_ENDS_AT":
            monkeypatch.delenv(name)
    monkeypatch.setattr("marlnb.allocations._known_ends", {})


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A scheduler's command with given answers, and the lines with which it was called."""
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def answers(script: str) -> Path:
        file = tmp_path / "bin" / "squeue"
        file.write_text(SQUEUE.format(answer=script))
        file.chmod(0o755)
        return calls

    return answers


def test_without_a_scheduler_it_is_the_machine() -> None:
    share = Allocation.current()
    assert (share.scheduler, share.job_id, share.ends_at, share.time_left_s) == ("none", "", None, None)
    assert share.node == os.uname().nodename
    assert 1 <= share.cores <= len(os.sched_getaffinity(0))
    assert share.describe()["time left"] == "no limit" and share.describe()["GPUs"] == "the machine's"


def test_the_share_that_slurm_gives(monkeypatch: pytest.MonkeyPatch, squeue) -> None:
    calls = squeue("echo 4000000000")
    given = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "cn1", "SLURM_CPUS_ON_NODE": "1", "SLURM_MEM_PER_NODE": "100"}
    given |= {"CUDA_VISIBLE_DEVICES": "MIG-aa, MIG-bb", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    allocation = Allocation.current()
    assert (allocation.scheduler, allocation.job_id, allocation.node, allocation.cores) == ("slurm", "17", "cn1", 1)
    assert allocation.gpus == ("MIG-aa", "MIG-bb") and allocation.gpu_percent == 25
    assert allocation.memory_bytes == 100 * 1024 * 1024
    assert allocation.ends_at == 4_000_000_000
    assert calls.read_text() == "%s --noheader --jobs 17 --format %e\n"
    shown = allocation._repr_html_()
    for part in (
        "SLURM job 17",
        "cn1",
        "2: MIG-aa, MIG-bb (slices of GPUs), 25% of each",
        "0.0977 GiB",
        "until 2096-",
    ):
        assert part in shown and part in repr(allocation)


def test_the_scheduler_is_asked_once_and_again_on_refresh(monkeypatch: pytest.MonkeyPatch, squeue) -> None:
    calls = squeue("echo 4000000000")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert [Allocation.current().ends_at for _ in range(3)] == [4e9] * 3
    assert calls.read_text().count("\n") == 1
    squeue("echo 4000000600")  # more time was granted
    assert Allocation.current().ends_at == 4e9
    assert allocation().ends_at == 4e9 + 600 == Allocation.current().ends_at
    assert calls.read_text().count("\n") == 2


def test_a_scheduler_that_does_not_answer_again_is_believed_as_before(monkeypatch: pytest.MonkeyPatch, squeue) -> None:
    squeue("echo 4000000000")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert Allocation.current().ends_at == 4e9
    squeue("echo 'Unable to contact slurm controller' >&2; exit 1")
    assert allocation().ends_at == 4e9 == Allocation.current().ends_at


def test_newer_slurms_say_it_in_a_variable(monkeypatch: pytest.MonkeyPatch, squeue) -> None:
    calls = squeue("echo 4000000600")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "4000000000")
    assert Allocation.current().ends_at == 4e9 and calls.read_text() == ""
    squeue("exit 1")
    assert Allocation.current(ask_again=True).ends_at == 4e9
    squeue("echo 4000000600")  # more time was granted
    assert Allocation.current(ask_again=True).ends_at == 4e9 + 600 == Allocation.current().ends_at


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Invalid job id specified' >&2; exit 1", "not known: squeue answered 'Invalid job id specified'"),
        ("echo N/A", "no limit"),
        ("true", "not known: squeue answered 'nothing'"),
        (None, "not known: squeue is not on this node"),
    ],
)
def test_an_end_that_is_not_known_says_why(monkeypatch: pytest.MonkeyPatch, squeue, script, reason) -> None:
    if script is None:
        monkeypatch.setenv("PATH", "/nonexistent")
    else:
        squeue(script)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    allocation = Allocation.current()
    assert allocation.ends_at is None and allocation.describe()["time left"] == reason


def test_a_variable_can_state_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARLNB_ENDS_AT", str(time.time() + 9000))
    left = Allocation.current().time_left_s
    assert left is not None and 8000 < left <= 9000
    monkeypatch.setenv("MARLNB_ENDS_AT", "soon")
    with pytest.raises(ConfigError, match=r"MARLNB_ENDS_AT must be seconds since 1970, such as .* got 'soon'"):
        Allocation.current()


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "1"}, ()),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ()),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "2,3"}, ("2", "3")),
        ({"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}, ("0", "1")),
    ],
)
def test_gpus_by_variable(monkeypatch: pytest.MonkeyPatch, squeue, variables, gpus) -> None:
    squeue("echo N/A")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Allocation.current().gpus == gpus


def test_memory_limits_of_both_kinds_of_control_groups(tmp_path: Path) -> None:
    job = tmp_path / "slurm" / "job_1" / "step_0"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job.parent / "memory.max").write_text("3000\n")
    (tmp_path / "slurm" / "memory.max").write_text("5000\n")
    assert sorted(_cgroup_limits(tmp_path, "0::/slurm/job_1/step_0\n")) == [3000, 5000]
    old = tmp_path / "memory" / "slurm"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("7000\n")
    (old.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # how version 1 says "no limit"
    assert _cgroup_limits(tmp_path, "4:memory:/slurm\n3:cpu,cpuacct:/slurm\n") == [7000]


def test_it_needs_no_torch() -> None:
    code = "import sys, marlnb; marlnb.allocation(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
