"""The local executor: one supervisor process a submission, which outlives whoever submitted."""

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
from typing import TYPE_CHECKING

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.executor import Executor, Known
from marlnb.batch.local.capacity import check_room, jobs_at_once
from marlnb.batch.local.machine import gpu_names
from marlnb.batch.local.process import OF_JOB
from marlnb.batch.local.record import LOCK, LOG, ask_to_cancel, is_local, is_supervised, read_entries
from marlnb.cores import usable_cores
from marlnb.registry import executor
from marlnb.training.runs.files import STOP, read_json
from marlnb.training.runs.lock import read_holder

if TYPE_CHECKING:
    from marlnb.batch.job.job import Job


@executor("local")
class LocalExecutor(Executor):
    """Jobs as processes of this machine, as many side by side as there are cores, GPUs and memory for."""

    ask_every_s = 0.0
    grace_s = 2.0

    def check(self) -> None:
        check_room(self.profile)

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        gpus = gpu_names(os.environ) if self.profile.gpus else []
        at_once = min(jobs_at_once(self.profile, len(gpus)), max(1, len(jobs)))
        each = f"{self.profile.cores} of {usable_cores()} cores"
        each += f", {self.profile.gpus} of {len(gpus)} GPUs" if self.profile.gpus else ""
        python = self.profile.python or sys.executable
        words = [shlex.join([python, "-m", "marlnb.batch.job.run_job", str(job.folder)]) for job in jobs]
        last = [shlex.join([python, "-m", "marlnb.batch.job.run_job", str(batch.report_job().folder)])] if then else []
        head = f"# {len(words)} processes, {at_once} side by side, each with {each}"
        return "\n".join([head, *words, *(["# when all are complete", *last] if last else [])]) + "\n"

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        """Starts the supervisor and returns `local <n>`, the number of the submission.

        The submission's lock is taken here and handed over, so that there is no moment at which nobody holds it.
        """
        folder = batch.begin_submission(jobs, then=then, reason=reason)
        words = [sys.executable, "-m", "marlnb.batch.local.supervisor", str(batch.path), str(folder)]
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with suppress(OSError):  # a file system without locks: the process below tells
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(folder / LOG, "ab") as log:
                process = subprocess.Popen(
                    [*words, str(descriptor)],
                    cwd=folder,
                    env={name: value for name, value in os.environ.items() if name != OF_JOB},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
            os.pwrite(descriptor, json.dumps({"pid": process.pid, "host": socket.gethostname()}).encode(), 0)
        finally:
            os.close(descriptor)
        threading.Thread(target=process.wait, name="marlnb-supervisor", daemon=True).start()  # no zombie stays behind
        return f"local {folder.name}"

    def known(self, batch: Batch) -> Mapping[str, Known]:
        found: dict[str, Known] = {}
        for folder in batch.submissions():
            if is_local(folder):
                found |= _known_of(folder)
        return {**{job.name: Known("unknown") for job in batch.jobs()}, **found}

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Asks the supervisors of these jobs; jobs that wait and have none are told in their status."""
        folders = {folder: _known_of(folder) for folder in batch.submissions() if is_local(folder)}
        for job in jobs:
            under = [folder for folder, known in folders.items() if _is_coming(known.get(job.name))]
            for folder in under:
                ask_to_cancel(folder, job.name)
            status = job.status()
            if job.is_held and not under:
                (job.folder / STOP).write_text("cancelled", encoding="utf-8")
            elif not under and status.state in ("waiting", "interrupted"):
                job.write_status(replace(status, state="stopped", reason="cancelled"))


def _is_coming(known: Known | None) -> bool:
    return known is not None and known.state in ("queued", "running")


def _known_of(folder: Path) -> dict[str, Known]:
    """What a submission's files tell of its jobs."""
    holder = read_holder(folder / LOCK)
    node = str(holder.get("host", ""))
    alive = is_supervised(folder)
    entries = read_entries(folder)
    asked = read_json(folder / "jobs.json")
    names = [*asked["jobs"], *([REPORT] if asked["then"] and alive else [])]
    found = {}
    for name in dict.fromkeys([*names, *entries]):
        entry = entries.get(name)
        if entry is None:
            state = (
                Known("queued", "" if entries else "its supervisor begins") if alive else Known("ended", _ended(folder))
            )
        elif entry.state != "ended" and not alive:
            state = Known("ended", _ended(folder), str(entry.pid or ""), node)
        else:
            state = Known(entry.state, entry.reason, str(entry.pid or ""), node)
        found[name] = state
    return found


def _ended(folder: Path) -> str:
    return f"its supervisor was killed (see {folder / LOG})"
