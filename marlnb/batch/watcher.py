"""Watcher: looks at a batch again and again, and begins again what was killed, lost or never begun."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from marlnb.batch.batch import BATCH, REPORT, Batch
from marlnb.batch.executor import Known
from marlnb.batch.job.job import Job, JobStatus
from marlnb.batch.progress_display import Board
from marlnb.batch.retries import give_up, times_begun_again
from marlnb.batch.submit import LOCK as SUBMIT_LOCK
from marlnb.errors import BatchError, MarlnbError, RunError
from marlnb.training.runs.lock import RunLock, read_holder

LOCK = "watch.lock"
ENDED = ("complete", "failed", "stopped")
COMING = ("queued", "running")
REFUSED_S = 60.0
"""How long a scheduler that refused is left alone."""


class Watcher:
    """Looks at a batch, again and again.

    Attributes:
        statuses: of each job by name, and of the report, as files told last.
        known: what the executor told last.
    """

    def __init__(self, batch: Batch, board: Board, *, resubmit: bool) -> None:
        self.batch, self.board, self.resubmit = batch, board, resubmit
        self.executor = batch.executor()
        self.statuses: dict[str, JobStatus] = {}
        self.known: Mapping[str, Known] = {}
        self._gone: dict[str, tuple[float, int]] = {}  # since when, and how often the executor was asked
        self._asked_at = self._refused_at = -float("inf")
        self._submissions = len(batch.submissions())
        self._read_at = _changed_at(batch)
        self._lock: RunLock | None = None
        self._complaint = ""

    def look(self) -> bool:
        """Reads what there is, begins again what was dropped; returns whether the batch has ended."""
        self._reopen()
        asked = self._ask()
        before, self.statuses = self.statuses, self._read()
        self._tell(before)
        if asked:
            self._miss()
        lost = self._lost()
        if lost and self._may_submit():
            self._begin_again(lost)
            lost = []
        queue = {name: known.reason for name, known in self.known.items() if known.state == "queued"}
        jobs = {name: status for name, status in self.statuses.items() if name != REPORT}
        self.board.show({job.name: job for job in self.batch.jobs()}, jobs, queue)
        given_up = set() if self.resubmit else {job.name for job in lost}
        ended = all(status.state in ENDED or name in given_up for name, status in self._awaited().items())
        return ended and self._is_settled()

    @property
    def is_sure(self) -> bool:
        """Whether no job may yet turn out to be lost, but those that somebody else begins again."""
        return len(self._gone) == len(self._lost())

    def failed(self) -> list[Job]:
        return [self.batch.job(name) for name, status in self.statuses.items() if status.state == "failed"]

    def release(self) -> None:
        """Lets others begin again what is dropped."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _awaited(self) -> dict[str, JobStatus]:
        """Jobs; and the report once it can run."""
        jobs = {name: status for name, status in self.statuses.items() if name != REPORT}
        complete = all(status.state == "complete" for status in jobs.values())
        return self.statuses if complete else jobs

    def _is_settled(self) -> bool:
        """Whether the executor, too, has done with what has ended: submitted before that, a job would be taken for one
        that runs. Of a scheduler, which is asked seldom, that is not awaited."""
        if self.executor.ask_every_s:
            return True
        return not any(self.known.get(name, Known("unknown")).state in COMING for name in self._awaited())

    def _reopen(self) -> None:
        """A batch that was given more jobs, or another profile, meanwhile."""
        now = _changed_at(self.batch)
        if now != self._read_at:
            self.batch, self._read_at = Batch.open(self.batch.path), now
            self.executor = self.batch.executor()

    def _ask(self) -> bool:
        """Whether the executor was asked, and has answered."""
        if time.monotonic() - self._asked_at < self.executor.ask_every_s:
            return False
        self._asked_at = time.monotonic()
        self._submissions = len(self.batch.submissions())
        try:
            self.known = self.executor.known(self.batch)
        except BatchError as error:
            self._complain(f"{self.executor.name} does not answer, and is asked again: {error}")
            return False
        return True

    def _read(self) -> dict[str, JobStatus]:
        jobs = [*self.batch.jobs(), *([self.batch.report_job()] if self.batch.then is not None else [])]
        found = {}
        for job in jobs:
            last = self.statuses.get(job.name, JobStatus())
            try:
                found[job.name] = last if last.state == "complete" and job.name != REPORT else job.status()
            except (RunError, OSError):  # a shared file system may need another moment
                found[job.name] = last
        return found

    def _tell(self, before: Mapping[str, JobStatus]) -> None:
        """A line for each job that has ended since the last look."""
        ended = sum(status.state in ENDED for name, status in self.statuses.items() if name != REPORT)
        for name, status in self.statuses.items():
            if name in before and status.state in ENDED and before[name].state not in ENDED:
                reason = f": {status.reason}" if status.reason and status.state != "complete" else ""
                where = "" if name == REPORT else f"[{ended}/{len(self.batch.jobs())}] "
                self.board.say(f"{where}{name}: {status.state}{reason}")

    def _miss(self) -> None:
        """Counts since when, and how often, files and executor agree that a job is gone."""
        gone = {}
        for name, status in self._awaited().items():
            known = self.known.get(name, Known("unknown"))
            if status.state in ENDED or known.state in COMING or self.batch.job(name).is_held:
                continue
            since, times = self._gone.get(name, (time.monotonic(), 0))
            gone[name] = (since, times + 1)
        self._gone = gone

    def _lost(self) -> list[Job]:
        """Jobs that have been gone long enough, and twice."""
        now, grace = time.monotonic(), self.executor.grace_s
        return [self.batch.job(name) for name, (since, n) in self._gone.items() if n >= 2 and now - since >= grace]

    def _may_submit(self) -> bool:
        if not self.resubmit or time.monotonic() - self._refused_at < REFUSED_S:
            return False
        if self._lock is None:
            path = self.batch.path / LOCK
            try:
                self._lock = RunLock(path)
            except RunError:
                holder = read_holder(path)
                who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
                self._complain(f"jobs are gone; {who} watches this batch too, and begins them again")
                return False
        return True

    def _begin_again(self, lost: Sequence[Job]) -> None:
        """Submits jobs again, unless that was done too often or somebody does it at this moment."""
        try:
            lock = RunLock(self.batch.path / SUBMIT_LOCK)
        except RunError:
            return
        with lock:
            if len(self.batch.submissions()) != self._submissions:  # what was asked is no longer so
                self._gone = {}
                return
            self._submit([job for job in lost if self._is_allowed(job)])
        self._gone = {}

    def _submit(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        reasons = {job.name: self._reason(job.name) for job in jobs}
        told = "; ".join(f"{reason} ({count})" for reason, count in Counter(reasons.values()).most_common(5))
        try:
            id = self.executor.submit(self.batch, jobs, then=False, reason=told)
        except MarlnbError as error:
            self._refused_at = time.monotonic()
            self._complain(f"{len(jobs)} jobs could not be begun again, which is tried again: {error}")
            return
        for name, reason in reasons.items():
            begun = "begun again" if self.statuses[name].attempt else "begun"
            self._note(f"{name}: {begun} as {id}: {reason}")
        self._asked_at = -float("inf")

    def _is_allowed(self, job: Job) -> bool:
        """Not what a person cancelled with the scheduler's own command, nor what was begun again too often."""
        reason, status = self._reason(job.name), self.statuses[job.name]
        if self.known.get(job.name, Known("unknown")).reason.upper().startswith("CANCELLED") and job.name != REPORT:
            job.write_status(replace(status, state="stopped", reason=reason, ended=time.time()))
            self._note(f"{job.name}: {reason}; it is not begun again")
            return False
        if times_begun_again(self.batch)[job.name] >= self.batch.profile.resubmits:
            self._note(f"{job.name}: {give_up(job, reason, self.batch.profile.resubmits)}")
            return False
        return True

    def _reason(self, name: str) -> str:
        """Why a job is gone, in the executor's words or in its own."""
        known, status = self.known.get(name, Known("unknown")), self.statuses[name]
        if name == REPORT and status.attempt == 0:
            return "all jobs are complete"
        unheard = "it was never begun" if status.attempt == 0 else f"{self.executor.name} knows nothing of it"
        return known.reason or status.reason or unheard

    def _note(self, text: str) -> None:
        self.batch.log_event(text)
        self.board.say(text)

    def _complain(self, text: str) -> None:
        """Once, and not at every look."""
        if text != self._complaint:
            self._complaint = text
            self.board.say(text)


def _changed_at(batch: Batch) -> float:
    path: Path = batch.path / BATCH
    return path.stat().st_mtime if path.exists() else 0.0
