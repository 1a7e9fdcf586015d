"""Monitor: shows a batch until it has ended, and restarts submitted jobs that were killed, lost or never started."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TextIO

from marlnb.batch.batch import BATCH, REPORT, SUBMIT_LOCK, Batch
from marlnb.batch.executor import executor_of
from marlnb.batch.job.failures import describe_failure
from marlnb.batch.job.job import UNKNOWN, Job, JobInfo, JobStatus
from marlnb.batch.job.signals import interrupt_on_signals
from marlnb.batch.progress_display import BatchProgress
from marlnb.batch.retries import count_restarts, give_up
from marlnb.display.formatting import count, marlnb_command
from marlnb.errors import BatchError, DiskError, MarlnbError, RunError
from marlnb.training.runs.lock import RunLock, read_holder

LOCK = "watch.lock"
FINISHED = ("complete", "failed", "stopped")
MAX_FAILURES_SHOWN = 10
REFUSAL_PAUSE_S = 60.0  # a scheduler that refused a submission is not asked again for this long


def watch(
    batch: Batch,
    *,
    only: Collection[str] = (),
    progress: bool = True,
    poll_s: float = 2.0,
    resubmit: bool = True,
    owns: bool = False,
    once: bool = False,
    stream: TextIO | None = None,
) -> Batch:
    """Returns when every submitted job is complete, failed or stopped, and the report has run if all jobs are complete.

    A submitted job that was killed, lost or never started, and that the executor will not run by itself, is submitted
    again; the reason is written to the batch's `events.log`. After `resubmits` of the profile it counts as failed. Jobs
    that failed or were stopped are not restarted, and jobs that were never submitted are not started. If several
    monitors watch one batch, only the first restarts jobs.

    Args:
        only: names of jobs, or `report`; the others are neither waited for nor restarted.
        progress: show progress.
        poll_s: seconds between two reads of the jobs' files; the executor is queried less often, as it prescribes.
        resubmit: False only watches, and returns when nothing runs or is queued any more.
        owns: an interrupt also ends the jobs, after they have saved; otherwise they continue without a monitor.
        once: restart what has to be restarted, then return without waiting for the end.
        stream: where progress is shown; None: stderr, or the notebook.
    Raises:
        KeyboardInterrupt: interrupted, also by SIGTERM or SIGUSR1.
        BatchError: `only` names an unknown job, or the executor cannot cancel the jobs.
    """
    display = BatchProgress(stream, silent=not progress)
    monitor = Monitor(batch, display, resubmit=resubmit, only=only)
    with interrupt_on_signals():
        try:
            while not (monitor.poll() or (once and monitor.has_decided)):
                time.sleep(poll_s)
        except KeyboardInterrupt:
            if owns:
                monitor.end_jobs(poll_s)
            else:
                display.say("no longer watching; the jobs continue")
            raise
        finally:
            monitor.release()
            display.close()
    if not once:
        failed = [monitor.batch.job(name) for name, status in monitor.statuses.items() if status.state == "failed"]
        for job in failed[:MAX_FAILURES_SHOWN]:
            display.say(describe_failure(job))
        if monitor.others and not only:
            jobs, command = count(len(monitor.others), "job"), marlnb_command("batch", monitor.batch.path)
            display.say(f"never submitted: {jobs}; to submit: {command}")
    return monitor.batch


class Monitor:
    """Polls a batch and restarts jobs.

    Attributes:
        statuses: the newest status of each requested job, and of the report, by name. Requested are the jobs of
            `only`; without it, all that were submitted.
        infos: the newest answer of the executor, by job name.
    """

    def __init__(self, batch: Batch, display: BatchProgress, *, resubmit: bool, only: Collection[str] = ()) -> None:
        self.batch, self.display, self.resubmit = batch, display, resubmit
        self.executor = executor_of(batch)
        self.statuses: dict[str, JobStatus] = {}
        self._only = {batch.job(name).name for name in only}
        self._requested = self._only or {*batch.submitted(), REPORT}
        self._all_statuses: dict[str, JobStatus] = {}
        self.infos: Mapping[str, JobInfo] = {}
        self._missing: dict[str, tuple[float, int]] = {}  # by job: missing since when, and in how many queries
        self._queried_at = self._refused_at = -float("inf")
        self._n_submissions = len(batch.submissions())
        self._read_at = self._modified_at()
        self._lock: RunLock | None = None
        self._last_warning = ""

    def poll(self) -> bool:
        """Reads the state, restarts missing jobs, and returns whether the batch has ended."""
        modified_at = self._modified_at()
        if modified_at != self._read_at:  # another process added jobs or changed the profile
            self.batch, self._read_at = Batch.open(self.batch.path), modified_at
            self.executor, self._missing = executor_of(self.batch), {}
        has_answer = self._query()
        before = self.statuses
        self._read_statuses()
        self._report_finished(before)
        if has_answer:
            self._count_missing()
        lost = self._lost()
        try:
            if lost and self._may_submit():
                self._restart(lost)
                lost = []
        except DiskError as error:
            self._warn(f"{count(len(lost), 'job')} could not be submitted, trying again: {error}")
        queue = {name: info.reason for name, info in self.infos.items() if info.state == "queued"}
        jobs = {name: status for name, status in self.statuses.items() if name != REPORT}
        self.display.show({job.name: job for job in self.batch.jobs()}, jobs, queue)
        abandoned = set() if self.resubmit else {job.name for job in lost}
        ended = all(status.state in FINISHED or name in abandoned for name, status in self._awaited().items())
        return ended and self._is_released()

    @property
    def others(self) -> list[str]:
        """Names of the jobs that are neither requested nor complete."""
        unfinished = [name for name, status in self._all_statuses.items() if status.state != "complete"]
        return [name for name in unfinished if name not in self.statuses]

    @property
    def has_decided(self) -> bool:
        """Whether each missing job has been restarted, or another process restarts it."""
        return len(self._missing) == len(self._lost())

    def release(self) -> None:
        """Lets other monitors restart jobs."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def end_jobs(self, poll_s: float) -> None:
        """Cancels all unfinished jobs that are requested, and waits until they have saved."""
        self.display.say("stopping: each job saves first; interrupt again to return without waiting for that")
        jobs = [self.batch.job(name) for name, status in self.statuses.items() if status.state not in FINISHED]
        jobs = [job for job in jobs if job.folder.exists()]  # a report that has not started has no folder
        self.executor.cancel(self.batch, jobs)
        while any(job.is_executing or self.executor.query(self.batch).get(job.name, UNKNOWN).is_active for job in jobs):
            time.sleep(poll_s)
        self.display.say(f"{count(len(jobs), 'job')} stopped")

    def _awaited(self) -> dict[str, JobStatus]:
        """The requested jobs; and the report once it can run."""
        return awaited(self._all_statuses, self._requested)

    def _is_released(self) -> bool:
        """Whether the executor, too, has finished the jobs: until then it would treat a new submission as running.

        Schedulers that are queried rarely are not waited for.
        """
        is_slow = self.executor.query_interval_s > 0
        return is_slow or not any(self.infos.get(name, UNKNOWN).is_active for name in self._awaited())

    def _query(self) -> bool:
        """Queries the executor if that is due; returns whether it answered."""
        if time.monotonic() - self._queried_at < self.executor.query_interval_s:
            return False
        self._queried_at = time.monotonic()
        self._n_submissions = len(self.batch.submissions())
        try:
            self.infos = self.executor.query(self.batch)
        except BatchError as error:
            self._warn(f"{self.executor.name} does not answer, trying again: {error}")
            return False
        return True

    def _read_statuses(self) -> None:
        statuses = {}
        for job in [*self.batch.jobs(), *([self.batch.report_job()] if self.batch.then is not None else [])]:
            last = self._all_statuses.get(job.name, JobStatus())
            try:
                statuses[job.name] = last if last.state == "complete" and job.name != REPORT else job.status()
            except (RunError, OSError):  # a shared file system may be late; read it at the next poll
                statuses[job.name] = last
        with suppress(RunError, OSError):  # the same
            self._requested = self._only or {*self.batch.submitted(), REPORT}
        self._all_statuses = statuses
        self.statuses = {name: status for name, status in statuses.items() if name in self._requested}

    def _report_finished(self, before: Mapping[str, JobStatus]) -> None:
        """Prints a line for each job that has finished since the last poll."""
        finished = [status.state in FINISHED for name, status in self.statuses.items() if name != REPORT]
        for name, status in self.statuses.items():
            if name in before and status.state in FINISHED and before[name].state not in FINISHED:
                reason = f": {status.reason}" if status.reason and status.state != "complete" else ""
                count = "" if name == REPORT else f"[{sum(finished)}/{len(finished)}] "
                self.display.say(f"{count}{name}: {status.state}{reason}")

    def _count_missing(self) -> None:
        """Notes since when, and in how many queries, files and executor agree that a job is gone."""
        missing = {}
        for name, status in self._awaited().items():
            info = self.infos.get(name, UNKNOWN)
            if not (status.state in FINISHED or info.is_active or self.batch.job(name).is_executing):
                since, n_queries = self._missing.get(name, (time.monotonic(), 0))
                missing[name] = (since, n_queries + 1)
        self._missing = missing

    def _lost(self) -> list[Job]:
        """Jobs that have been missing for the grace period, and in at least two queries."""
        now, grace = time.monotonic(), self.executor.grace_s
        return [self.batch.job(name) for name, (since, n) in self._missing.items() if n >= 2 and now - since >= grace]

    def _may_submit(self) -> bool:
        if not self.resubmit or time.monotonic() - self._refused_at < REFUSAL_PAUSE_S:
            return False
        if self._lock is None:
            path = self.batch.path / LOCK
            try:
                self._lock = RunLock(path)
            except RunError:
                holder = read_holder(path)
                owner = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
                self._warn(f"jobs are missing; {owner} watches this batch too and restarts them")
                return False
        return True

    def _restart(self, lost: Sequence[Job]) -> None:
        """Submits jobs again, unless they reached the limit or another process submits at this moment."""
        try:
            lock = RunLock(self.batch.path / SUBMIT_LOCK)
        except RunError:
            return
        with lock:
            # another process may have submitted since the last query, whose answer is then out of date
            if len(self.batch.submissions()) == self._n_submissions:
                self._submit([job for job in lost if self._may_restart(job)])
        self._missing = {}

    def _submit(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        reasons = {job.name: self._reason(job.name) for job in jobs}
        summary = "; ".join(f"{reason} ({count})" for reason, count in Counter(reasons.values()).most_common(5))
        try:
            id = self.executor.submit(self.batch, jobs, then=False, reason=summary)
        except MarlnbError as error:
            self._refused_at = time.monotonic()
            self._warn(f"{count(len(jobs), 'job')} could not be submitted, trying again: {error}")
            return
        for name, reason in reasons.items():
            verb = "restarted" if self.statuses[name].attempt else "started"
            self._log(f"{name}: {verb} as {id}: {reason}")
        self._queried_at = -float("inf")

    def _may_restart(self, job: Job) -> bool:
        """False for a job that a person cancelled with the scheduler's command, or that reached the limit."""
        reason, status = self._reason(job.name), self.statuses[job.name]
        if self.infos.get(job.name, UNKNOWN).reason.upper().startswith("CANCELLED") and job.name != REPORT:
            job.write_status(replace(status, state="stopped", reason=reason, ended=time.time()))
            self._log(f"{job.name}: {reason}; it is not restarted")
            return False
        n_starts = int(job.name == REPORT)  # its first start, where the executor starts no report
        if count_restarts(self.batch)[job.name] - n_starts >= self.batch.profile.resubmits:
            self._log(f"{job.name}: {give_up(job, reason, self.batch.profile.resubmits)}")
            return False
        return True

    def _reason(self, name: str) -> str:
        """Why a job is gone, in the executor's words or in its own."""
        info, status = self.infos.get(name, UNKNOWN), self.statuses[name]
        if name == REPORT and status.state == "waiting":
            return "all jobs are complete"
        default = "it was never started" if status.attempt == 0 else f"{self.executor.name} has no record of it"
        return info.reason or status.reason or default

    def _log(self, text: str) -> None:
        try:
            self.batch.log_event(text)
        except OSError as error:  # a full disk
            self._warn(str(error))
        self.display.say(text)

    def _warn(self, text: str) -> None:
        """Prints a warning once, not at every poll."""
        if text != self._last_warning:
            self._last_warning = text
            self.display.say(text)

    def _modified_at(self) -> float:
        path = self.batch.path / BATCH
        return path.stat().st_mtime if path.exists() else 0.0


def awaited(statuses: Mapping[str, JobStatus], requested: Collection[str]) -> dict[str, JobStatus]:
    """What a command waits for: the requested jobs; and the requested report once all jobs are complete."""
    can_report = all(status.state == "complete" for name, status in statuses.items() if name != REPORT)
    return {name: status for name, status in statuses.items() if name in requested and (name != REPORT or can_report)}
