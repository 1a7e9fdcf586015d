"""The plan of a submission: what happens to each job of a batch and what that costs, before anything starts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.batch.batch import JOBS, REPORT, THEN, Batch, digest
from marlnb.batch.cost import Cost, estimate
from marlnb.batch.executor import executor_of
from marlnb.batch.job.job import UNKNOWN, Job, JobInfo, JobStatus
from marlnb.display.formatting import count
from marlnb.errors import BatchError, unknown

MAX_ROWS = 12
N_FIRST_ROWS, N_LAST_ROWS = 7, 2


@dataclass(frozen=True)
class PlannedJob:
    """One job and what happens to it.

    Attributes:
        job: the job.
        status: its present status.
        submits: whether it is submitted now.
        action: in words: "new", "failed before, run again: ...", "complete", ...
    """

    job: Job
    status: JobStatus
    submits: bool
    action: str


@dataclass(frozen=True)
class SubmissionPlan:
    """What `submit_plan` will do.

    Attributes:
        batch: the batch as it will be; nothing is written yet.
        notebook: path of the notebook.
        then: path of the report notebook; None without one.
        jobs: one entry per job, in the sweep's order.
        report: what happens to the report; None without one.
        cost: estimated time and storage.
        n_submissions: number of the batch's submissions when the plan was made.
        only: names of the requested jobs; empty: all.
        query_error: why it is not known which jobs are queued; empty if it is.
        notes: what else a person should know.
    """

    batch: Batch
    notebook: Path
    then: Path | None
    jobs: tuple[PlannedJob, ...]
    report: PlannedJob | None
    cost: Cost
    n_submissions: int
    only: tuple[str, ...] = ()
    query_error: str = ""
    notes: tuple[str, ...] = ()

    @property
    def submits(self) -> list[Job]:
        """The jobs that are submitted now."""
        return [planned.job for planned in self.jobs if planned.submits]

    @property
    def awaited(self) -> tuple[str, ...]:
        """Names for which a command waits: of the requested jobs, and of a report that follows; empty: all."""
        return (*self.only, REPORT) if self.only and self.submits and self.report is not None else self.only

    @property
    def starts_nothing(self) -> bool:
        """Whether neither a job nor the report is submitted."""
        return not (self.submits or (self.report is not None and self.report.submits))

    def describe(self) -> str:
        """The plan as text for a terminal."""
        profile, sweep = self.batch.profile, self.batch.sweep
        axes = " × ".join(f"{name} ({len(values)})" for name, values in sweep.axes.items()) or "one set of parameters"
        counts = Counter(planned.action.partition(":")[0] for planned in self.jobs)
        lines = [
            f"batch    {self.batch.path}",
            f"jobs     {len(self.jobs)} of {self.batch.notebook}: {axes}, with the {profile.executor} executor",
            f"submit   {len(self.submits)}: " + "; ".join(f"{count} {action}" for action, count in counts.items()),
            *self.cost.lines(),
        ]
        if self.report is not None:
            lines.append(f"then     {self.batch.then}: {self.report.action}")
        lines += [f"note     {note}" for note in self.notes]
        width = max(len(planned.job.name) for planned in self.jobs)
        rows = [f"  {planned.job.name:<{width}}  {planned.action}" for planned in self.jobs]
        if len(rows) > MAX_ROWS:
            n_hidden = len(rows) - N_FIRST_ROWS - N_LAST_ROWS
            rows = [*rows[:N_FIRST_ROWS], f"  … {n_hidden} more …", *rows[-N_LAST_ROWS:]]
        return "\n".join([*lines, "", *rows])

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": str(self.batch.path),
            "notebook": self.batch.notebook,
            "sweep": self.batch.sweep.to_json(),
            "profile": self.batch.profile.to_json(),
            "jobs": [
                {"job": each.job.name, "state": each.status.state, "submits": each.submits, "action": each.action}
                for each in self.jobs
            ],
            "then": self.batch.then,
            "seconds_each": self.cost.seconds,
            "time_limit_s": self.cost.limit_s,
            "bytes_each": self.cost.size_bytes,
            "free_bytes": self.cost.free_bytes,
            "notes": list(self.notes),
        }


def make_plan(
    batch: Batch, notebook: Path, then: Path | None = None, *, only: Sequence[str] = (), retry_failed: bool = True
) -> SubmissionPlan:
    """Reads the batch's folder and queries its executor for the state of each job.

    Args:
        batch: as `Batch.planned` returns it.
        only: names of jobs, or `report`; empty: all jobs.
        retry_failed: whether failed jobs run again.
    Raises:
        BatchError: `only` names an unknown job, another executor still has jobs of the batch, or jobs that the sweep
            no longer has still run or wait.
    """
    names = [job.name for job in batch.jobs()]
    for name in only:
        if name not in names and not (name == REPORT and then is not None):
            raise BatchError(unknown(f"job of {batch.path}", name, names))
    n_submissions = len(batch.submissions())  # read first, to notice a submission by another process
    infos, query_error = _query(batch)
    notes = [query_error] if query_error else []
    if n_submissions:
        _check_left_out(batch, infos)
    statuses = batch.statuses()
    jobs = tuple(
        _plan_job(job, statuses[job.name], infos.get(job.name, UNKNOWN), not only or job.name in only, retry_failed)
        for job in batch.jobs()
    )
    report = None if then is None else _plan_report(batch, then, jobs, infos.get(REPORT, UNKNOWN), only)
    with suppress(FileNotFoundError):
        if others := sorted({entry.name for entry in (batch.path / JOBS).iterdir()} - set(names)):
            notes.append(
                f"jobs of an earlier sweep are in this folder ({len(others)}, {others[0]} is one) and not part of the "
                "batch now: their files stay, tables and reports ignore them"
            )
    cost = estimate(batch, notebook, statuses, sum(planned.submits for planned in jobs))
    return SubmissionPlan(
        batch, notebook, then, jobs, report, cost, n_submissions, tuple(only), query_error, tuple(notes)
    )


def _plan_job(job: Job, status: JobStatus, info: JobInfo, is_requested: bool, retry_failed: bool) -> PlannedJob:
    if status.state == "complete":
        return PlannedJob(job, status, False, "complete")
    if job.is_executing or info.state == "running":
        return PlannedJob(job, status, False, f"already running: {status.progress}".rstrip(": "))
    if info.state == "queued":
        return PlannedJob(job, status, False, f"already queued: {info.reason or info.id}".rstrip(": "))
    if not is_requested:
        return PlannedJob(job, status, False, "not requested")
    if status.state == "failed":
        reason = f": {status.error.name} in cell {status.error.cell}" if status.error else f": {status.reason}"
        action = "failed before, run again" if retry_failed else "failed before, not run again"
        return PlannedJob(job, status, retry_failed, action + reason.rstrip(": "))
    if status.state == "waiting" and not status.attempt:
        return PlannedJob(job, status, True, "new")
    word = status.state if status.state in ("stopped", "interrupted") else "started"
    return PlannedJob(job, status, True, f"{word} before, continues")


def _plan_report(
    batch: Batch, then: Path, jobs: Sequence[PlannedJob], info: JobInfo, only: Sequence[str]
) -> PlannedJob:
    job = batch.report_job()
    status = job.status()
    if job.is_executing or info.is_active:
        return PlannedJob(job, status, False, "already runs or is queued, after the jobs that were submitted before")
    if any(planned.submits for planned in jobs):
        return PlannedJob(job, status, False, "runs when all jobs are complete")
    if any(planned.status.state != "complete" for planned in jobs):
        return PlannedJob(job, status, False, "does not run: not all jobs are complete")
    if only and REPORT not in only:
        return PlannedJob(job, status, False, "not requested")
    if status.state == "complete" and REPORT not in only and digest(batch.path / THEN) == digest(then):
        return PlannedJob(job, status, False, "complete")
    return PlannedJob(job, status, True, "starts: all jobs are complete")


def _check_left_out(batch: Batch, infos: Mapping[str, JobInfo]) -> None:
    """Raises BatchError if a job of the batch's folder runs or waits that the new sweep does not have.

    No command would show it or end it any more.
    """
    names = {job.name for job in batch.jobs()}
    left_out = [job for job in Batch.open(batch.path).jobs() if job.name not in names]
    active = [job.name for job in left_out if infos.get(job.name, UNKNOWN).is_active or job.is_executing]
    if active:
        raise BatchError(
            f"{count(len(active), 'job')} of {batch.path} still run or wait ({active[0]} is one), and these values do "
            f"not have them: give their values too, cancel them first with `marlnb cancel "
            f"{shlex.quote(str(batch.path))}`, or give --out another folder"
        )


def _query(batch: Batch) -> tuple[Mapping[str, JobInfo], str]:
    """What the executor of an existing batch knows, and why it does not answer; nothing for a new batch.

    Raises:
        BatchError: the batch changes its executor while the old one has jobs; the new one does not know them and would
            start them a second time.
    """
    if not batch.submissions():
        return {}, ""
    existing = Batch.open(batch.path)
    before = existing.profile.executor
    try:
        infos = executor_of(existing).query(existing)
    except BatchError as error:
        return {}, f"the {before} executor did not say which jobs are queued: {error}"
    active = [name for name, info in infos.items() if info.is_active]
    if before != batch.profile.executor and active:
        raise BatchError(
            f"the {before} executor still has {count(len(active), 'job')} of {batch.path} ({active[0]} is one), and "
            f"the {batch.profile.executor} executor would start them a second time; wait until they have ended, cancel "
            f"them with `marlnb cancel {shlex.quote(str(batch.path))}`, or give --out another folder"
        )
    return infos, ""
