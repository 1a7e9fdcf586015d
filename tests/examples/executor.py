"""An executor in one file: runs jobs one after the other in a background process, as `nohup` would.

Importing this file registers the executor: a profile with `executor: sequential` then uses it, from the command line,
from Python and from the widgets. An installed package does the same through the entry-point group `marlnb.executors`.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.executor import Executor, executor
from marlnb.batch.job.job import Job, JobInfo
from marlnb.errors import BatchError
from marlnb.training.runs.files import STOP, read_json
from marlnb.training.runs.lock import process_alive

SCRIPT, PID = "jobs.sh", "pid"


@executor("sequential")
class SequentialExecutor(Executor):
    """Runs the jobs of a submission one after the other, and then the report."""

    query_interval_s = 0.0  # a query reads only files
    grace_s = 2.0

    def check(self) -> None:
        if self.profile.gpus:
            raise BatchError(f"profile: gpus is {self.profile.gpus}, but the sequential executor has none; set gpus: 0")

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        folders = [job.folder for job in [*jobs, *([batch.report_job()] if then else [])]]
        python = self.profile.python or sys.executable
        # run_job is the one command that executes a job; it writes the job's status, log and notebook by itself
        commands = [shlex.join([python, "-m", "marlnb.batch.job.run_job", str(folder)]) for folder in folders]
        if then:  # a job that is not complete has another exit code than 0
            commands = [f"{command} || complete=no" for command in commands[:-1]] + [
                f'[ "$complete" = no ] || {commands[-1]}'
            ]
        return "\n".join(commands) + "\n"

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        # the report needs all jobs of the batch, not only those of this submission
        then = then and {job.name for job in batch.unfinished()} <= {job.name for job in jobs}
        folder = batch.create_submission(jobs, then=then, reason=reason)
        if then:
            batch.report_job().write()
        (folder / SCRIPT).write_text(self.preview(batch, jobs, then=then), encoding="utf-8")
        # a new session: the jobs survive the terminal and the process that submitted them
        process = subprocess.Popen(["bash", folder / SCRIPT], stdin=subprocess.DEVNULL, start_new_session=True)
        threading.Thread(target=process.wait, daemon=True).start()  # reaps the process when it ends
        (folder / PID).write_text(str(process.pid))
        return f"sequential {folder.name}"

    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        infos = {job.name: JobInfo("unknown") for job in batch.jobs()}
        for folder in batch.submissions():
            submission = read_json(folder / "jobs.json")
            for name in [*submission["jobs"], *([REPORT] if submission["then"] else [])]:
                infos[name] = _info(batch.job(name), folder)
        return infos

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.is_executing:
                (job.folder / STOP).touch()  # the job saves and ends within seconds
            else:
                job.write_status(replace(job.status(), state="stopped", reason="cancelled"))


def _info(job: Job, submission: Path) -> JobInfo:
    if job.is_executing:
        return JobInfo("running")
    has_ended = job.status().state in ("complete", "failed", "stopped")
    pid = (submission / PID).read_text() if (submission / PID).exists() else ""
    is_alive = bool(pid) and process_alive(int(pid))
    return JobInfo("queued", "other jobs run first", pid) if is_alive and not has_ended else JobInfo("ended", "", pid)
