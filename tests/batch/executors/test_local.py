"""The local executor: real supervisors, real kernels, real kills."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marlnb.allocations import usable_cores
from marlnb.batch.executor import executor_of
from marlnb.batch.local.capacity import check_capacity
from marlnb.batch.local.process import processes_of
from marlnb.batch.local.supervisor_files import read_entries
from marlnb.batch.profile import Profile
from marlnb.errors import BatchError
from tests.batch.batches import Maker, finish, has_printed, kill, output, submit, supervisor, wait_until

FATES = """
import os, pathlib, signal, time
attempts = pathlib.Path(run, "cache"); attempts.mkdir(exist_ok=True)
first = not any(attempts.iterdir()); (attempts / str(time.time())).touch()
if n == 1:
    1 / 0
if (n == 2 and first) or n == 4:
    os.kill(os.getppid(), signal.SIGKILL); time.sleep(100)
if n == 3 and first:
    os.kill(os.getpid(), signal.SIGKILL)
print(sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"])
"""
WARNED_SOON: dict[str, Any] = {"time_limit": "00:01:03", "warn_s": 60}  # after 3 s, in which bash has begun
SLEEP = "import time\nprint('sleeping', flush=True)\ntime.sleep(100)"


def test_killed_jobs_restart_up_to_a_cap_failed_ones_do_not_and_the_others_continue(make: Maker) -> None:
    batch = make(FATES, n=range(1, 5), then="print(batch)", resubmits=1)
    submit(batch, then=True)
    outcomes = finish(batch)
    attempts = {name: status.attempt for name, status in batch.statuses().items()}
    assert {name: state for name, (state, _) in outcomes.items()} == {
        "n=1": "failed",
        "n=2": "complete",
        "n=3": "complete",
        "n=4": "failed",
    }
    assert attempts == {"n=1": 1, "n=2": 2, "n=3": 2, "n=4": 2}
    assert "ZeroDivisionError" in outcomes["n=1"][1]
    assert "killed by SIGKILL" in outcomes["n=4"][1] and "given up" in outcomes["n=4"][1]
    events = (batch.path / "events.log").read_text(encoding="utf-8")
    assert "n=2: restarted: killed by SIGKILL" in events and "n=3: restarted: interrupted (the kernel" in events
    cores, threads = output(batch.job("n=2").folder).rsplit(maxsplit=1)
    assert len(ast.literal_eval(cores)) == 1 and threads == "1"
    assert not batch.report_job().folder.exists()  # not all are complete
    assert not [pid for job in batch.jobs() for pid in processes_of(job.folder)]


def test_a_supervisor_outlives_its_caller_and_runs_the_report_last(make: Maker) -> None:
    batch = make(
        "import pathlib, time\nwhile not pathlib.Path(run, 'cache').exists():\n    time.sleep(0.05)\nprint(n)",
        n=(3,),
        then="import pathlib\nprint(sorted(p.name for p in pathlib.Path(batch, 'jobs').iterdir()))",
    )
    program = (
        "import sys; from marlnb.batch.batch import Batch; from marlnb.batch.executor import executor_of;"
        "batch = Batch.open(sys.argv[1]);"
        "print(executor_of(batch).submit(batch, batch.jobs(), then=True))"
    )
    done = subprocess.run([sys.executable, "-c", program, batch.path], capture_output=True, text=True, check=True)
    assert done.stdout == "local 1\n"
    pid = supervisor(batch)
    assert os.getsid(pid) == pid  # a terminal that is closed, or a notebook's kernel that ends, does not reach it
    assert {name: heard.state for name, heard in executor_of(batch).query(batch).items()}["report"] == "queued"
    (batch.job("n=3").folder / "cache").mkdir()
    assert finish(batch) == {"n=3": ("complete", "")}
    assert output(batch.job("n=3").folder) == "3\n"
    assert batch.report_job().status().state == "complete"
    assert output(batch.report_job().folder) == "['n=3']\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_supervisor_that_is_ended_leaves_saved_jobs_and_nothing_that_runs(make: Maker, number: int) -> None:
    batch = make(SLEEP, n=(0, 1), at_once=1)
    submit(batch)
    wait_until(lambda: has_printed(batch, "n=0", "sleeping"))
    known = executor_of(batch).query(batch)
    assert (known["n=0"].state, known["n=1"].state) == ("running", "queued")
    os.kill(supervisor(batch), number)
    wait_until(lambda: not processes_of(batch.job("n=0").folder))
    assert finish(batch) == {
        "n=0": ("interrupted", "SIGTERM"),
        "n=1": ("waiting", ""),
    }  # it wrote its status


def test_cancelled_jobs_are_stopped_whether_they_run_or_wait(make: Maker) -> None:
    batch = make(SLEEP, n=(0, 1, 2), at_once=1)
    submit(batch)
    wait_until(lambda: has_printed(batch, "n=0", "sleeping"))
    executor_of(batch).cancel(batch, [batch.job("n=0"), batch.job("n=2")])
    wait_until(lambda: has_printed(batch, "n=1", "sleeping"))  # the one in between continues
    states = {name: status.state for name, status in batch.statuses().items()}
    assert states == {"n=0": "stopped", "n=1": "running", "n=2": "stopped"}
    kill(supervisor(batch))
    wait_until(lambda: not processes_of(batch.job("n=1").folder))
    executor_of(batch).cancel(batch, [batch.job("n=1")])  # it has no supervisor any more
    assert finish(batch)["n=1"][0] == "stopped"


def test_a_time_limit_warns_and_restarts_after_progress_are_not_counted(make: Maker) -> None:
    warned = (
        'trap \'echo "{\\"frames\\": $n}" > status.json; exit 75\' USR1; echo run >> attempts; n=$(wc -l < attempts)\n'
        '[ $n = 3 ] && { echo \'{"state": "complete"}\' > job_status.json; exit 0; }\nwhile true; do sleep 0.05; done'
    )
    batch = make("", python=make.script(warned), **WARNED_SOON, resubmits=0)
    submit(batch)
    assert finish(batch)["n=0"][0] == "complete"
    assert (batch.job("n=0").folder / "attempts").read_text() == "run\n" * 3
    assert batch.submissions()[0].joinpath("supervisor.log").read_text().count("sent SIGUSR1") == 2


def test_a_time_limit_without_headway_is_counted(make: Maker) -> None:
    batch = make("", python=make.script("echo run >> attempts; sleep 60"), **WARNED_SOON, resubmits=1)
    submit(batch)
    state, reason = finish(batch)["n=0"]
    assert state == "failed" and reason.startswith("time limit: killed by SIGUSR1; given up after 1 restarts")
    assert (batch.job("n=0").folder / "attempts").read_text() == "run\n" * 2


def test_two_batches_on_a_machine_take_different_cores(make: Maker) -> None:
    batches = [make("", python=make.script("sleep 600")) for _ in range(2)]
    for batch in batches:
        submit(batch)
    pids = []
    for batch in batches:
        wait_until(lambda batch=batch: executor_of(batch).query(batch)["n=0"].id)
        pids.append(int(executor_of(batch).query(batch)["n=0"].id))
    first, second = (os.sched_getaffinity(pid) for pid in pids)
    assert len(first) == len(second) == 1
    assert len(first | second) == min(2, usable_cores())  # with one core there is nothing to choose


def test_gpus_are_dealt_out_from_those_that_are_visible(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,GPU-b")
    show = "echo $CUDA_VISIBLE_DEVICES > gpu; until [ $(cat ../*/gpu | wc -l) -ge 2 ]; do sleep 0.05; done; exit 1"
    batch = make("", n=(0, 1, 2), python=make.script(show), gpus=1, at_once=2)
    submit(batch)
    finish(batch)
    taken = [(job.folder / "gpu").read_text().strip() for job in batch.jobs()]
    assert set(taken[:2]) == {"MIG-a", "GPU-b"} and taken[2] in taken[:2]


def test_a_process_that_cannot_start_is_a_failed_job(make: Maker) -> None:
    script = Path(make.script(""))
    script.write_text("#!/nowhere/python\n")
    batch = make("", n=(0, 1), python=str(script))
    submit(batch)
    outcomes = finish(batch)
    assert all(state == "failed" and str(script) in reason for state, reason in outcomes.values())
    assert all(entry.state == "ended" for entry in read_entries(batch.submissions()[0]).values())


def test_what_this_machine_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    refused = {
        f"cores is 1000, but this machine has {usable_cores()}": Profile(cores=1000),
        r"gpus is 2, but this machine has 1 \(GPU-a\)": Profile(gpus=2),
        "memory_gb is 90000, but": Profile(memory_gb=90_000),
        "time_limit 00:01:00 must be longer than warn_s, 120 s": Profile(time_limit="00:01:00"),
        "python is /nowhere/python, which is no executable file": Profile(python="/nowhere/python"),
        "python is bash, which is no executable file": Profile(python="bash", environment={"PATH": "/nowhere"}),
        "does not support partition, modules": Profile(partition="gpu", modules=("cuda",)),
    }
    for message, profile in refused.items():
        with pytest.raises(BatchError, match=message):
            check_capacity(profile)


def test_a_preview_tells_the_processes_and_begins_nothing(make: Maker, tmp_path: Path) -> None:
    batch = make("", n=(0, 1, 2), then="", at_once=2, python="/elsewhere/python")
    lines = executor_of(batch).preview(batch, batch.jobs(), then=True).splitlines()
    assert lines[0] == f"# 3 jobs, 2 in parallel, each with 1 of {usable_cores()} cores"
    assert lines[1] == f"/elsewhere/python -m marlnb.batch.job.run_job {batch.path}/jobs/n=0"
    assert lines[-2:] == [
        "# when all are complete",
        f"/elsewhere/python -m marlnb.batch.job.run_job {batch.path}/report",
    ]
    assert not batch.submissions()
