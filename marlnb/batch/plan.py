"""Plan: what submitting a batch would do to each of its jobs, and what that costs, before anything begins."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.batch.batch import BATCH, JOBS, REPORT, THEN, Batch, digest
from marlnb.batch.cost import Cost, estimate
from marlnb.batch.executor import Known
from marlnb.batch.job.job import Job, JobStatus
from marlnb.errors import BatchError, unknown

MOST_ROWS = 12
FIRST_ROWS, LAST_ROWS = 7, 2


@dataclass(frozen=True)
class Step:
    """One job and what becomes of it.

    Attributes:
        begins: whether it is submitted now.
        what: in words: "new", "failed before, run again: ...", "complete", ...
    """

    job: Job
    status: JobStatus
    begins: bool
    what: str


@dataclass(frozen=True)
class Plan:
    """What `begin` will do.

    Attributes:
        batch: as it will be; nothing is written yet.
        notebook, then: the notebooks that were given.
        steps: one a job, in the sweep's order.
        report: what becomes of the report; None without one.
        n_submissions: how many the batch had when the plan was made.
        notes: what a person should know beside that.
    """

    batch: Batch
    notebook: Path
    then: Path | None
    steps: tuple[Step, ...]
    report: Step | None
    cost: Cost
    n_submissions: int
    notes: tuple[str, ...] = ()

    @property
    def begins(self) -> list[Job]:
        """The jobs that are submitted."""
        return [step.job for step in self.steps if step.begins]

    def describe(self) -> str:
        """For a terminal."""
        profile, sweep = self.batch.profile, self.batch.sweep
        axes = " × ".join(f"{name} ({len(values)})" for name, values in sweep.axes.items()) or "one set of parameters"
        counts = Counter(step.what.partition(":")[0] for step in self.steps)
        lines = [
            f"batch    {self.batch.path}",
            f"jobs     {len(self.steps)} of {self.batch.notebook}: {axes}, by the {profile.executor} executor",
            f"begin    {len(self.begins)}: " + "; ".join(f"{count} {what}" for what, count in counts.items()),
            *self.cost.lines(),
        ]
        if self.report is not None:
            lines.append(f"then     {self.batch.then}: {self.report.what}")
        lines += [f"note     {note}" for note in self.notes]
        return "\n".join([*lines, "", *self._rows()])

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": str(self.batch.path),
            "notebook": self.batch.notebook,
            "sweep": self.batch.sweep.to_json(),
            "profile": self.batch.profile.to_json(),
            "jobs": [
                {"job": step.job.name, "state": step.status.state, "begins": step.begins, "what": step.what}
                for step in self.steps
            ],
            "then": self.batch.then,
            "seconds_each": self.cost.seconds,
            "time_limit_s": self.cost.limit_s,
            "bytes_each": self.cost.size_bytes,
            "free_bytes": self.cost.free_bytes,
            "notes": list(self.notes),
        }

    def _rows(self) -> list[str]:
        width = max(len(step.job.name) for step in self.steps)
        rows = [f"  {step.job.name:<{width}}  {step.what}" for step in self.steps]
        if len(rows) <= MOST_ROWS:
            return rows
        return [*rows[:FIRST_ROWS], f"  … {len(rows) - FIRST_ROWS - LAST_ROWS} more …", *rows[-LAST_ROWS:]]


def make_plan(
    batch: Batch, notebook: Path, then: Path | None = None, *, only: Sequence[str] = (), retry_failed: bool = True
) -> Plan:
    """Looks at the batch's folder, and asks its executor, for what is there already.

    Args:
        batch: as `Batch.planned` makes it.
        only: names of jobs, or `report`; empty: all.
        retry_failed: whether jobs that failed are run again.
    Raises:
        BatchError: `only` names a job that the batch does not have; jobs are still with another executor.
    """
    names = [job.name for job in batch.jobs()]
    for name in only:
        if name not in names and not (name == REPORT and then is not None):
            raise BatchError(unknown(f"job of {batch.path}", name, names))
    n_submissions = len(batch.submissions())  # before the rest is looked at
    known, notes = _ask(batch)
    _check_executor(batch, known)
    statuses = batch.statuses()
    steps = tuple(
        _step(job, statuses[job.name], known.get(job.name), not only or job.name in only, retry_failed)
        for job in batch.jobs()
    )
    begins = sum(step.begins for step in steps)
    report = None if then is None else _report(batch, then, steps, known.get(REPORT), only)
    notes = [*notes, *_outside(batch, names)]
    cost = estimate(batch, notebook, statuses, begins)
    return Plan(batch, notebook, then, steps, report, cost, n_submissions, tuple(notes))


def _step(job: Job, status: JobStatus, known: Known | None, asked: bool, retry_failed: bool) -> Step:
    if status.state == "complete":
        return Step(job, status, False, "complete")
    if job.is_held or (known is not None and known.state == "running"):
        return Step(job, status, False, f"running already: {status.progress}".rstrip(": "))
    if known is not None and known.state == "queued":
        return Step(job, status, False, f"queued already: {known.reason or known.id}".rstrip(": "))
    if not asked:
        return Step(job, status, False, "not asked for")
    if status.state == "failed":
        why = f": {status.error.name} in cell {status.error.cell}" if status.error else f": {status.reason}"
        told = "failed before, run again" if retry_failed else "failed before, left"
        return Step(job, status, retry_failed, told + why.rstrip(": "))
    if status.state == "waiting" and not status.attempt:
        return Step(job, status, True, "new")
    word = {"stopped": "stopped", "interrupted": "interrupted"}.get(status.state, "begun")
    return Step(job, status, True, f"{word} before, goes on")


def _report(batch: Batch, then: Path, steps: Sequence[Step], known: Known | None, only: Sequence[str]) -> Step:
    job = batch.report_job()
    status = job.status()
    if job.is_held or (known is not None and known.state in ("queued", "running")):
        return Step(job, status, False, "runs or is queued already, after the jobs that were submitted before")
    if any(step.begins for step in steps):
        return Step(job, status, False, "is run when all jobs are complete")
    if any(step.status.state != "complete" for step in steps):
        return Step(job, status, False, "is not run: not all jobs are complete")
    if only and REPORT not in only:
        return Step(job, status, False, "is not asked for")
    if status.state == "complete" and REPORT not in only and digest(batch.path / THEN) == digest(then):
        return Step(job, status, False, "complete")
    return Step(job, status, True, "begins: all jobs are complete")


def _ask(batch: Batch) -> tuple[Mapping[str, Known], list[str]]:
    """What the executor that the batch was submitted to knows; nothing of a batch that is new."""
    if not (batch.path / BATCH).exists():
        return {}, []
    there = Batch.open(batch.path)
    if not there.submissions():
        return {}, []
    try:
        return there.executor().known(there), []
    except BatchError as error:
        return {}, [f"the {there.profile.executor} executor could not be asked what is queued: {error}"]


def _check_executor(batch: Batch, known: Mapping[str, Known]) -> None:
    """Only one executor is asked of a batch: jobs that another one still has would be forgotten, and begun twice."""
    if not known:
        return
    before = Batch.open(batch.path).profile.executor
    there = [name for name, heard in known.items() if heard.state in ("queued", "running")]
    if before != batch.profile.executor and there:
        raise BatchError(
            f"{len(there)} jobs of {batch.path} are queued or running by the {before} executor ({there[0]} is one), "
            f"and the {batch.profile.executor} executor would not know of them; wait for them, end them with "
            f"`marlnb cancel {shlex.quote(str(batch.path))}`, or give --out another folder"
        )


def _outside(batch: Batch, names: Sequence[str]) -> list[str]:
    """Jobs of an earlier sweep that this one does not have."""
    with suppress(FileNotFoundError):
        others = sorted({entry.name for entry in (batch.path / JOBS).iterdir()} - set(names))
        if others:
            return [
                f"{len(others)} jobs of an earlier sweep lie in this batch and are not part of it now ({others[0]} is "
                f"one): their files stay, tables and reports leave them out"
            ]
    return []
