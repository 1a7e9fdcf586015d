"""Answers of a real SLURM, read; `captured/README.md` says what they are answers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.batch.job.job import JobInfo
from marlnb.batch.slurm.queue import Site, expand, read_sacct, read_site, read_squeue

CAPTURED = Path(__file__).parent / "captured"
HELD = "held: `scontrol release` releases it (JobHeldUser)"


def captured(name: str) -> str:
    return (CAPTURED / f"{name}.txt").read_text(encoding="utf-8")


def test_squeue_tells_each_task() -> None:
    tasks = read_squeue(captured("squeue-running"))
    assert tasks["18_0"] == JobInfo("ended", "", "18_0", "vm")
    assert tasks["18_1"] == JobInfo("ended", "FAILED", "18_1", "vm")
    assert tasks["18_2"] == JobInfo("running", "", "18_2", "vm")
    assert tasks["18_3"] == JobInfo("ended", "CANCELLED", "18_3", "vm")
    assert tasks["18_5"] == JobInfo("ended", "FAILED, JobLaunchFailure", "18_5", "vm")
    assert tasks["19_0"] == JobInfo("queued", "Dependency", "19_0")
    assert tasks["20_0"] == JobInfo("queued", HELD, "20_0")
    assert "20_1" not in tasks
    assert tasks["27_9"] == JobInfo("ended", "FAILED, BadConstraints", "27_9")
    assert tasks["28_3"] == JobInfo("queued", "Resources", "28_3")
    assert len(tasks) == len(captured("squeue-running").splitlines())


def test_squeue_of_what_has_ended_tells_no_reason_from_when_it_waited() -> None:
    tasks = read_squeue(captured("squeue-ended"))
    assert {known.state for known in tasks.values()} == {"ended"}
    assert tasks["18_2"].reason == "TIMEOUT"
    assert tasks["19_0"].reason == "CANCELLED, DependencyNeverSatisfied"
    assert tasks["20_0"].reason == tasks["28_3"].reason == "CANCELLED"


def test_sacct_tells_each_task_those_that_wait_too() -> None:
    tasks = read_sacct(captured("sacct-running"))
    assert tasks["18_0"] == JobInfo("ended", "", "18_0", "vm")
    assert tasks["18_1"] == JobInfo("ended", "FAILED, exit code 1", "18_1", "vm")
    assert tasks["18_3"] == JobInfo("ended", "CANCELLED by 0", "18_3", "vm")
    assert tasks["18_4"] == JobInfo("running", "", "18_4", "vm")
    assert tasks["18_5"] == JobInfo("ended", "FAILED, signal 9", "18_5", "vm")
    assert tasks["19_0"] == JobInfo("queued", "Dependency", "19_0")
    assert "20_1" not in tasks
    assert [tasks[f"20_{k}"] for k in (0, 2, 9)] == [JobInfo("queued", HELD, f"20_{k}") for k in (0, 2, 9)]
    assert tasks["28_3"] == JobInfo("queued", "", "28_3")


def test_a_task_of_its_own_goes_before_the_list_that_it_was_in() -> None:
    assert "28_2|RUNNING" in captured("sacct-later") and "28_[2-3]|PENDING" in captured("sacct-later")
    tasks = read_sacct(captured("sacct-later"))
    assert (tasks["28_2"].state, tasks["28_3"].state) == ("running", "queued")
    assert tasks["18_2"] == JobInfo("ended", "TIMEOUT", "18_2", "vm")
    ended = read_sacct(captured("sacct-ended"))
    assert ended["28_3"].reason == "CANCELLED by 0" and ended["28_0"].reason == ""
    assert ended["19_0"].reason == "CANCELLED, DependencyNeverSatisfied"


def test_what_a_site_is() -> None:
    assert read_site(captured("scontrol")) == Site(1001, accounting=False)
    assert read_site(captured("scontrol-accounting")) == Site(1001, accounting=True)
    newer = captured("scontrol").replace("= accounting_storage/none", "= (null)")  # since SLURM 23.11
    assert read_site(newer) == Site(1001, accounting=False) and "(null)" in newer
    limited = captured("scontrol").replace("= sched_interval=5", "= max_array_tasks=200,sched_interval=5")
    assert read_site(limited).max_array_size == 200


@pytest.mark.parametrize(
    ("text", "indices"),
    [("7_[0]", [0]), ("7_[0-2,7%4]", [0, 1, 2, 7]), ("7_[0-6:3,9]", [0, 3, 6, 9]), ("7_[5-5]", [5])],
)
def test_lists_of_tasks(text: str, indices: list[int]) -> None:
    assert list(expand(text)) == [f"7_{index}" for index in indices]


def test_a_job_that_is_no_array_is_itself() -> None:
    assert list(expand("17")) == ["17"] and list(expand("17_3")) == ["17_3"]


@pytest.mark.parametrize(
    ("state", "whereabouts", "reason"),
    [
        ("REQUEUED", "queued", "REQUEUED: Priority"),
        ("REQUEUE_HOLD", "queued", "REQUEUE_HOLD: Priority"),
        ("COMPLETING", "running", "COMPLETING"),
        ("SUSPENDED", "running", "SUSPENDED"),
        ("NODE_FAIL", "ended", "NODE_FAIL"),
        ("OUT_OF_MEMORY", "ended", "OUT_OF_MEMORY"),
        ("PREEMPTED", "ended", "PREEMPTED"),
        ("PENDING", "queued", "Priority"),
    ],
)
def test_states_that_are_hard_to_bring_about(state: str, whereabouts: str, reason: str) -> None:
    assert read_squeue(f"7_0|{state}|n1|Priority\n")["7_0"] == JobInfo(whereabouts, reason, "7_0", "n1")  # type: ignore[arg-type]
