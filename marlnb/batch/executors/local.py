"""The local executor: one supervisor process per submission, independent of the process that submitted."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from marlnb.allocations import usable_cores
from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.executor import Executor, executor
from marlnb.batch.job.job import UNKNOWN, Job, JobInfo
from marlnb.batch.local.capacity import SCHEDULER_KEYS, check_capacity, n_parallel_jobs
from marlnb.batch.local.machine import gpu_names
from marlnb.batch.local.supervisor_files import LOCK, LOG, has_supervisor, is_local, read_entries, request_cancel
from marlnb.batch.submission import Submission
from marlnb.disk import writing
from marlnb.display.formatting import count
from marlnb.errors import BatchError
from marlnb.training.control import request
from marlnb.training.runs.files import JOB_VARIABLE
from marlnb.training.runs.lock import read_holder


@executor("local")
class LocalExecutor(Executor):
    """Runs jobs as processes of this machine, as many in parallel as there are cores, GPUs and memory for."""

    query_interval_s = 0.0
    grace_s = 2.0
    unsupported = SCHEDULER_KEYS

    def check(self) -> None:
        check_capacity(self.profile)

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        gpus = gpu_names(os.environ) if self.profile.gpus else []
        n_parallel = min(n_parallel_jobs(self.profile, len(gpus)), max(1, len(jobs)))
        resources = f"{self.profile.cores} of {usable_cores()} cores"
        resources += f", {self.profile.gpus} of {len(gpus)} GPUs" if self.profile.gpus else ""
        words = [self.profile.interpreter, "-m", "marlnb.batch.job.run_job"]
        lines = [f"# {count(len(jobs), 'job')}, {n_parallel} in parallel, each with {resources}"]
        lines += [shlex.join([*words, str(job.folder)]) for job in jobs]
        if then:
            lines += ["# when all are complete", shlex.join([*words, str(batch.report_job().folder)])]
        return "\n".join(lines) + "\n"

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        """Starts the supervisor and returns `local <n>`, the number of the submission.

        The submission's lock is acquired here and inherited by the supervisor, so it is held from the start.
        """
        folder = batch.create_submission(jobs, then=then, reason=reason)
        words = [sys.executable, "-m", "marlnb.batch.local.supervisor", str(batch.path), str(folder)]
        with writing(folder, kind=BatchError):
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with suppress(OSError):  # a file system without locks: the process id below is used instead
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with writing(folder / LOG, kind=BatchError), open(folder / LOG, "ab") as log:
                process = subprocess.Popen(
                    [*words, str(descriptor)],
                    cwd=folder,
                    env={name: value for name, value in os.environ.items() if name != JOB_VARIABLE},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
            with suppress(OSError):  # a full disk: the lock is held all the same
                os.pwrite(descriptor, json.dumps({"pid": process.pid, "host": socket.gethostname()}).encode(), 0)
        finally:
            os.close(descriptor)
        threading.Thread(target=process.wait, name="marlnb-supervisor", daemon=True).start()  # reaps the process
        return f"local {folder.name}"

    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        infos: dict[str, JobInfo] = {}
        for folder in batch.submissions():
            if is_local(folder):
                infos |= _query_submission(folder)
        return {**{job.name: UNKNOWN for job in batch.jobs()}, **infos}

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Asks the supervisors of these jobs to end them; waiting jobs without a supervisor are marked as stopped."""
        folders = {folder: _query_submission(folder) for folder in batch.submissions() if is_local(folder)}
        for job in jobs:
            supervised = [folder for folder, infos in folders.items() if infos.get(job.name, UNKNOWN).is_active]
            for folder in supervised:
                request_cancel(folder, job.name)
            status = job.status()
            if job.is_executing and not supervised:
                request(job.folder, "stop", "cancelled")
            elif not supervised and status.state in ("waiting", "interrupted"):
                job.write_status(replace(status, state="stopped", reason="cancelled"))


def _query_submission(folder: Path) -> dict[str, JobInfo]:
    """The state of a submission's jobs by name, from its files."""
    node = str(read_holder(folder / LOCK).get("host", ""))
    has_living_supervisor = has_supervisor(folder)
    killed = f"its supervisor was killed (see {folder / LOG})"
    entries = read_entries(folder)
    submission = Submission.read(folder)
    names = [*submission.jobs, *([REPORT] if submission.then and has_living_supervisor else [])]
    infos = {}
    for name in dict.fromkeys([*names, *entries]):
        entry = entries.get(name)
        pid = str(entry.pid or "") if entry else ""
        if entry is None and has_living_supervisor:
            infos[name] = JobInfo("queued", "" if entries else "its supervisor is starting")
        elif entry is None:
            infos[name] = JobInfo("ended", killed)
        elif entry.state != "ended" and not has_living_supervisor:
            infos[name] = JobInfo("ended", killed, pid, node)
        else:
            infos[name] = JobInfo(entry.state, entry.reason, pid, node)
    return infos
