"""A job executed by one process: what its files and its exit code say."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.job import run_job
from marlnb.batch.job.execute import main as execute_main
from marlnb.batch.job.failures import describe_failure, rerun_command
from marlnb.batch.job.job import JOB_LOCK, Job, JobStatus
from marlnb.batch.job.run_job import main, requeue
from marlnb.training.runs.lock import RunLock
from tests.batch.batches import Maker
from tests.batch.jobs import make, run, start, texts, wait_for


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job that is complete."""
    folder = tmp_path_factory.mktemp("done")
    cells = (
        "import os\nprint(os.environ['MARLNB_JOB'], os.environ['ANSWER'], os.getcwd())",
        "open(run + '/mine.txt', 'w').close()\nos.mkdir(run + '/sub')\nprint(run)\nn",
    )
    plain = make(folder / "job", *cells, n=21)
    job = Job(plain.folder, plain.notebook, plain.parameters, folder, {"ANSWER": "42"})
    job.write()
    started = time.time()
    assert run(job, SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="3", SLURM_JOB_END_TIME="4000000000") == 0
    assert started <= job.status().started <= job.status().ended <= time.time()
    return job


def test_a_job_tells_everything_in_its_folder(done: Job) -> None:
    status = done.status()
    assert (status.state, status.attempt, status.cell, status.n_cells) == ("complete", 1, 4, 4)
    assert status.seconds == pytest.approx(status.ended - status.started, abs=0.1)
    assert status.scheduler_id == "17_3" and status.ends == 4e9 and status.host == os.uname().nodename
    assert texts(done)[2:] == [f"{done.folder} 42 {done.cwd}\n", f"{done.folder}\n"]
    (attempt,) = done.attempts()
    assert attempt["state"] == "complete" and attempt["attempt"] == 1
    log = done.log.read_text()
    assert f"{done.folder} 42 {done.cwd}\n" in log and "cell 3 of 4" in log and "21\n" in log
    assert "<html" in (done.folder / "notebook.html").read_text()


def test_everything_in_a_jobs_folder_is_its_users_own(done: Job) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [done.folder, *done.folder.rglob("*")]}
    assert modes["job"] == modes["sub"] == 0o700 and "mine.txt" in modes
    shared = {name: oct(mode) for name, mode in modes.items() if mode & 0o077 and name != "job.json"}
    assert not shared  # job.json was written at the submission, in a folder that other users cannot enter


def test_a_failure_tells_job_values_cell_error_log_and_command(tmp_path: Path) -> None:
    job = make(tmp_path / "jobs" / "n=0", "print('before')", "x = 1\n1 / n", "print('never')", n=0)
    (tmp_path / "batch.json").touch()
    assert run(job) == 1
    status = job.status()
    assert status.state == "failed" and status.reason == "cell 4: ZeroDivisionError: division by zero"
    assert status.error is not None and status.error.cell == 4 and status.error.source == "x = 1\n1 / n"
    assert status.error.name == "ZeroDivisionError" and "\x1b" not in status.error.traceback
    text = describe_failure(job)
    for part in ("n=0", '{"n": 0}', "cell 4 of 5", "1 / n", "division by zero", "before"):
        assert part in text
    assert text.endswith(f"marlnb batch {tmp_path} --only n=0")
    log = job.log.read_text()
    assert log.count(text.splitlines()[0]) == 1 and log.rstrip().endswith(text)  # the log holds it, and it not itself
    assert text.count("ZeroDivisionError: division by zero") <= 3 and text.count("to run this job again") == 1
    assert texts(job)[-1] == "" and "Exception" in nbformat.read(job.folder / "notebook.ipynb", 4).cells[0].source
    assert run(job) == 1 and job.status().attempt == 2  # the same again, and the notebook has one marker still
    assert len(nbformat.read(job.folder / "notebook.ipynb", 4).cells) == 7


def test_the_command_that_runs_again_is_one_that_a_shell_reads_as_meant(tmp_path: Path) -> None:
    job = make(tmp_path / "my run", text="it's; $(x)")
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {rerun_command(job)}"], capture_output=True, text=True)
    assert words.stdout.split("\0")[3:-1] == [
        *(str(job.notebook), "--out", str(job.folder)),
        *("-p", "text=" + json.dumps("it's; $(x)")),
    ]


def test_bad_requests_execute_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "is not a job" in capfd.readouterr().err
    job = make(tmp_path / "job", "print(1)", m=1)
    assert run(job) == 2
    assert job.status().state == "failed" and "no parameter 'm' of job.ipynb" in job.log.read_text()
    with RunLock(job.folder / JOB_LOCK):
        assert run(job) == 2
    assert f"process {os.getpid()}" in job.log.read_text()
    assert job.status().attempt == 1
    assert not (job.folder / "notebook.ipynb").exists()


def test_a_job_tells_of_itself_once_a_second_and_a_file_stop_ends_a_cell_that_does_not_train(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "print('begun')\nimport time; time.sleep(600)")
    (job.folder / "STOP").touch()  # of before: it is not meant for this attempt
    process = start(job)
    try:
        wait_for(lambda: job.log.exists() and "begun" in job.log.read_text(), process)
        wait_for(lambda: job.status().cell == 3, process)
        assert not (job.folder / "STOP").exists() and job.status().state == "running"
        times = [job.status().updated]
        for _ in range(3):
            times.append(wait_for(lambda: now if (now := job.status().updated) > times[-1] else None, process))
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.9
        (job.folder / "STOP").touch()
        assert process.wait(timeout=120) == 130
    finally:
        process.kill()
        process.wait()
    assert (job.status().state, job.status().reason) == ("stopped", "the file STOP")
    assert not (job.folder / "STOP").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_ends_a_cell_that_does_not_train_and_it_runs_again(tmp_path: Path, name: str) -> None:
    wait = "import os, pathlib, time\nprint(os.getpid(), flush=True)\nonce = pathlib.Path(run, 'once')\n"
    job = make(tmp_path / "job", f"{wait}if not once.exists():\n    once.touch()\n    time.sleep(600)")
    process = start(job)
    try:
        wait_for(lambda: (job.folder / "once").exists(), process)
        kernel = wait_for(lambda: next((line for line in job.log.read_text().splitlines() if line.isdigit()), ""))
        os.killpg(process.pid, signal.Signals[name])
        assert process.wait(timeout=120) == os.EX_TEMPFAIL  # the cell itself would take 600 s
    finally:
        process.kill()
        process.wait()
    assert (job.status().state, job.status().reason) == ("interrupted", name)
    wait_for(lambda: not Path(f"/proc/{kernel}").exists())
    if name == "SIGUSR1":
        assert run(job) == 0
        assert [attempt["state"] for attempt in job.attempts()] == ["interrupted", "complete"]


@pytest.mark.parametrize(("code", "message"), [(0, "SLURM will run 17_3 again"), (1, "refused to run 17_3 again: no")])
def test_slurm_requeues_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho no such job >&2\nexit {code}\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert requeue() == ""
    assert not (tmp_path / "asked").exists()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert message in requeue()
    assert (tmp_path / "asked").read_text() == "requeue 17_3\n"


def test_a_job_that_runs_in_a_session_does_not_requeue_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m marlnb.batch.job.execute` in a JupyterLab that runs as a SLURM job."""
    asked: list[str] = []
    job = make(tmp_path / "job")
    monkeypatch.setattr(run_job, "_execute", lambda attempt, *_: attempt.end("interrupted", "SIGUSR1"))
    monkeypatch.setattr(run_job, "_redirect_output", lambda _: None)
    monkeypatch.setattr(run_job, "requeue", lambda: asked.append("requeue"))
    assert execute_main([str(job.notebook), "--out", str(job.folder)]) == os.EX_TEMPFAIL
    assert asked == [] and job.status().state == "interrupted"
    assert main([str(job.folder)]) == os.EX_TEMPFAIL
    assert asked == ["requeue"]


def test_a_task_whose_job_is_complete_executes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = Maker(tmp_path)("1", n=(0, 1), then="2")
    batch.report_job().write()
    jobs = [*batch.jobs(), batch.report_job()]
    submission = batch.create_submission(jobs, then=False)
    for job in (jobs[0], jobs[2]):
        job.write_status(JobStatus("complete"))
    executed: list[str] = []

    def execute(job: Job, **_: object) -> JobStatus:
        executed.append(job.name)
        return JobStatus("complete")

    monkeypatch.setattr(run_job, "_redirect_output", lambda _: None)
    monkeypatch.setattr(run_job, "execute_job", execute)
    assert [main(["--submission", str(submission), "--index", str(k)]) for k in range(3)] == [0, 0, 0]
    assert executed == ["n=1", "report"]
    assert capsys.readouterr().out == "job n=0 is complete and is not executed again\n"


def test_it_starts_without_torch() -> None:
    code = "import sys; import marlnb.batch.job.run_job; print([n for n in sys.modules if n in ('torch', 'papermill')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    code = (
        "import sys; from marlnb.batch.job.run_job import skip_url_grammar; skip_url_grammar()\n"
        "import marlnb.batch.job.execute_notebook; print([n for n in ('torch', 'pandas', 'lark') if n in sys.modules])"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
