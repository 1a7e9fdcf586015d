"""Batches whose files are changed at random: listed, queried, explained, and shown by the queue and the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marlnb.batch.batch import Batch
from marlnb.batch.job.failures import describe_failure
from marlnb.batch.job.job import CellError, JobStatus
from marlnb.batch.local.supervisor_files import JobEntry, write_entries
from marlnb.batch.overview import job_rows, query_executor
from marlnb.batch.profile import Profile
from marlnb.batch.ray import submission_record as ray_record
from marlnb.batch.retries import count_restarts
from marlnb.batch.slurm import submission_record as slurm_record
from marlnb.batch.slurm.script import Part
from marlnb.batch.sweep.sweep import Sweep
from marlnb.cli import main
from marlnb.lab.queue import Queue
from tests.batch.batches import notebook
from tests.fuzz.changed_folders import FolderTarget

ERROR = CellError(2, "raise ValueError('no')", "ValueError", "no", "Traceback\nValueError: no")


def batch_folders(folder: Path) -> FolderTarget:
    """A target of changed batches. It is made where the changed ones are: Ray's ids belong to that folder."""
    original = make_batch(folder / "batch").rename(folder / "original")
    return FolderTarget(original, folder / "batch", looks_at_batch)


def make_batch(folder: Path) -> Path:
    """A batch of three jobs, one of each end, with the records of three executors."""
    source = notebook(folder.with_name("n.ipynb"), "print(n)")
    batch = Batch.create(folder, source, Sweep({"n": (0, 1, 2)}, {}), Profile(python=sys.executable), then=source)
    complete, failed, running = batch.jobs()
    complete.write_status(JobStatus("complete", attempt=1, cell=2, n_cells=2, seconds=3.0))
    failed.write_status(JobStatus("failed", "cell 2: ValueError: no", 1, 2, 2, error=ERROR))
    running.write_status(JobStatus("running", attempt=2, cell=1, n_cells=2, progress="1 of 2", started=1.0))
    for job in batch.jobs():
        job.log.write_text("a line\n")
        row = {"attempt": 1, "started": 1.0, "ended": 2.0, "state": "failed", "reason": "no", "host": "here"}
        (job.folder / "attempts.jsonl").write_text(json.dumps(row) + "\n")
    local, slurm, ray = (batch.create_submission(batch.jobs(), then=True, reason=reason) for reason in ("", "a", "b"))
    (local / "supervisor.lock").write_text('{"pid": 0, "host": "here"}')
    write_entries(local, {job.name: JobEntry("ended", "no", restarts=1) for job in batch.jobs()})
    part = Part(number=1, first=0, count=3)
    slurm_record.SubmissionRecord(True, "", (slurm_record.Array(17, part),), None).write(slurm)
    ids = {job.name: ray_record.new_id(job) for job in batch.jobs()}
    ray_record.SubmissionRecord("http://127.0.0.1:1", ids).write(ray)
    batch.log_event("submitted")
    return batch.path


def looks_at_batch(folder: Path, with_widgets: bool) -> dict[str, Callable[[], Any]]:
    """Everything that is read of a batch; the queue has no errors, but sends JSON to a page."""
    batch = Batch.open(folder)

    def queue() -> None:
        answer = json.dumps(Queue().read([str(folder.parent)], fresh=True), allow_nan=False)
        assert answer

    def command() -> None:
        for words in (["jobs", str(folder)], ["jobs", str(folder), "--json"], ["jobs", str(folder.parent)]):
            main(words)

    return {
        "text": lambda: repr(batch),
        "html": batch._repr_html_,
        "rows": lambda: json.dumps([row.to_json() for row in job_rows(batch, query_executor(batch)[0])]),
        "cells": lambda: [row.cells() for row in job_rows(batch)],
        "attempts": lambda: [job.attempts() for job in batch.jobs()],
        "failures": lambda: [describe_failure(job, job.status()) for job in batch.jobs()],
        "restarts": lambda: count_restarts(batch),
        "slurm": lambda: slurm_record.tasks(batch),
        "ray": lambda: ray_record.submitted_jobs(batch),
        "versions": batch.made_with,
        "queue": queue,
        "job": lambda: [Queue().read_job(str(folder), job.name) for job in batch.jobs()],
        "command": command,
    }
