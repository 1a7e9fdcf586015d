"""The SLURM executor: one job array per submission; its script and SLURM's answer stay on disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.executor import Executor, executor, unreadable
from marlnb.batch.job.job import UNKNOWN, Job, JobInfo, JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.commands import call
from marlnb.batch.slurm.queue import Site, cancel_tasks, query_accounting, query_queue, query_site
from marlnb.batch.slurm.refusals import check_path, check_profile
from marlnb.batch.slurm.sbatch_defaults import with_sbatch_defaults
from marlnb.batch.slurm.script import REPORT_SCRIPT, array_script, parts, report_script
from marlnb.batch.slurm.submission_record import Array, SubmissionRecord, Task, all_tasks, tasks
from marlnb.disk import writing
from marlnb.display.formatting import count
from marlnb.errors import BatchError, MarlnbError
from marlnb.training.control import request
from marlnb.training.runs.files import STOP

REFUSED = "refused"
ACCOUNTING_DELAY_S = 300.0  # the accounting database may not know a submission for this long
DEFAULT_SITE = Site(max_array_size=1001, accounting=False)  # SLURM's own defaults


@executor("slurm")
class SlurmExecutor(Executor):
    """Submits with sbatch, queries squeue or sacct, cancels with scancel.

    The user's defaults for sbatch (`SBATCH_ACCOUNT` and similar) fill keys that the profile does not set, and are
    written into the script.
    """

    query_interval_s = 30.0  # sites ask users not to query more often

    def _requested(self) -> Profile:
        """The profile with the user's defaults. Raises BatchError: sbatch could not read it."""
        profile = with_sbatch_defaults(self.profile)
        check_profile(profile)
        return profile

    def check(self) -> None:
        self._requested()
        call("sbatch", "--version")

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        """The scripts; without SLURM on this machine, with SLURM's default limits."""
        profile = self._requested()
        check_path(batch.path)
        try:
            site = query_site()
        except BatchError:
            site = DEFAULT_SITE
        submission, scripts = batch.next_submission(), {}
        array_parts = parts(len(jobs), site.max_array_size)
        for part in array_parts:
            after = f"<id of part {part.number - 1}>" if part.number > 1 and profile.at_once else ""
            scripts[part.script] = array_script(batch, profile, submission, part, len(array_parts), after)
        if then:
            several = len(array_parts) > 1
            ids = [f"<id of part {part.number}>" if several else "<id of the array>" for part in array_parts]
            scripts[REPORT_SCRIPT] = report_script(batch, profile, submission, ids)
        return "\n".join(f"# {submission / name}\n{script}" for name, script in scripts.items())

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        self._requested()  # an error now, before anything is written
        check_path(batch.path)
        site, before = query_site(), tasks(batch)
        if site.max_array_size < 1:
            raise BatchError(
                "this SLURM does not accept job arrays (MaxArraySize=0 in its configuration); ask its administrators"
            )
        waits_for = self._still_running(batch, jobs, before) if then else []
        submission = batch.create_submission(jobs, then=then, reason=reason)
        for job in jobs:  # a request to stop an earlier attempt
            (job.folder / STOP).unlink(missing_ok=True)
        record = SubmissionRecord(site.accounting if self.profile.accounting is None else self.profile.accounting)
        accepted: list[Accepted] = []
        try:
            record = self._submit_arrays(batch, submission, accepted, record, len(jobs), site.max_array_size)
            if then and waits_for is not None:
                record = self._submit_report(batch, submission, accepted, record, waits_for, before.get(REPORT))
        except (MarlnbError, OSError, KeyboardInterrupt) as error:
            undone = _undo(submission, accepted)
            n_jobs = count(len(jobs), "job")
            event = f"SLURM refused {n_jobs}" if isinstance(error, BatchError) else f"{n_jobs} not submitted"
            with suppress(OSError):  # a full disk, as the error may say
                batch.log_event(f"{event}: {str(error) or type(error).__name__}")
            if not isinstance(error, MarlnbError):
                raise
            raise BatchError(f"{error}\n{undone}") from error
        ids = ", ".join(str(array.id) for array in record.arrays)
        if then and record.report is None:
            batch.log_event("the report was not submitted: some jobs are neither complete nor submitted")
        return f"slurm {ids}" + (f", the report {record.report}" if record.report is not None else "")

    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        (answer,) = _query([(batch, self.profile)])
        if isinstance(answer, BatchError):
            raise answer
        return answer

    @classmethod
    def query_all(cls, batches: Sequence[Batch]) -> list[Mapping[str, JobInfo] | BatchError]:
        """With one call for each cluster, however many batches there are."""
        return _query([(batch, batch.profile) for batch in batches])

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Asks running jobs to save and end; a second call lets SLURM end them. Other jobs never start.

        If a job was submitted more than once, all of its tasks end.

        The request is a file, and the job has time to save: after `scancel` it has only KillWait, about 30 s. Jobs
        count as stopped once SLURM has answered, so that a call that failed can be repeated.

        Raises:
            BatchError: SLURM does not answer.
        """
        submitted, to_end, to_cancel = all_tasks(batch), [], list[Task]()
        for job in jobs:
            status = job.status()
            of_job = [task for task in submitted.get(job.name, ()) if not status.has_ended_since(task.updated)]
            if job.name in submitted and not of_job:
                continue
            if job.is_executing and not (job.folder / STOP).exists():
                request(job.folder, "stop", "cancelled")
                if status.scheduler_id in {task.id for task in of_job}:
                    to_cancel += [task for task in of_job if task.id != status.scheduler_id]
                continue
            to_end.append((job, status))
            to_cancel += of_job
        for cluster in sorted({task.record.cluster for task in to_cancel}):
            cancel_tasks(cluster, [task.id for task in to_cancel if task.record.cluster == cluster])
        for job, status in to_end:
            if not job.is_executing and job.status() == status:  # it has not run in the meantime
                job.write_status(replace(status, state="stopped", reason="cancelled"))

    def _submit_arrays(
        self,
        batch: Batch,
        submission: Path,
        accepted: list[Accepted],
        record: SubmissionRecord,
        n_jobs: int,
        max_array_size: int,
    ) -> SubmissionRecord:
        array_parts, profile, after = parts(n_jobs, max_array_size), self._requested(), ""
        for part in array_parts:
            script = array_script(batch, profile, submission, part, len(array_parts), after)
            id, cluster = _sbatch(submission, part.script, script)
            accepted.append((cluster, id))
            record = replace(record, cluster=cluster, arrays=(*record.arrays, Array(id, part)))
            record.write(submission)
            after = str(id) if profile.at_once else ""
        return record

    def _submit_report(
        self,
        batch: Batch,
        submission: Path,
        accepted: list[Accepted],
        record: SubmissionRecord,
        waits_for: Sequence[str],
        old: Task | None,
    ) -> SubmissionRecord:
        """Submits the report, to run after these arrays and earlier jobs that still run; replaces an older report."""
        job = batch.report_job()
        job.write()
        if old is not None and not job.status().has_ended_since(old.updated):
            cancel_tasks(old.record.cluster, [old.id])
        after = [*(str(array.id) for array in record.arrays), *waits_for]
        script = report_script(batch, self._requested(), submission, after)
        id, cluster = _sbatch(submission, REPORT_SCRIPT, script)
        accepted.append((cluster, id))
        record = replace(record, cluster=cluster, report=id)
        record.write(submission)
        return record

    def _still_running(self, batch: Batch, jobs: Sequence[Job], before: Mapping[str, Task]) -> list[str] | None:
        """Ids of earlier tasks that the report waits for; None if a job is neither complete nor submitted."""
        now = {job.name for job in jobs}
        others = [job.name for job in batch.unfinished() if job.name not in now]
        if not others:
            return []
        infos = self.query(batch)
        active = [name for name in others if infos[name].is_active]
        return [before[name].id for name in active] if len(active) == len(others) else None


Accepted = tuple[str, int]
"""The cluster and the id of an array that sbatch accepted."""

Submitted = tuple[dict[str, JobStatus], dict[str, Task], dict[str, Task]]
"""By name, the statuses of a batch's jobs, the newest task of each, and of these the tasks that may not have ended."""


def _query(batches: Sequence[tuple[Batch, Profile]]) -> list[Mapping[str, JobInfo] | BatchError]:
    """The state of each job of each batch by name, with one call for each cluster; none if all have ended."""
    read = [_submitted(batch) for batch, _ in batches]
    arrays: dict[tuple[str, bool], list[int]] = {}  # by cluster, and whether its accounting is queried
    for (_, profile), submitted in zip(batches, read):
        for task in () if isinstance(submitted, BatchError) else submitted[2].values():
            accounting = task.record.accounting if profile.accounting is None else profile.accounting
            arrays.setdefault((task.record.cluster, accounting), []).append(task.array)
    answers: dict[str, dict[str, JobInfo]] = {}  # by cluster
    for (cluster, accounting), ids in sorted(arrays.items()):
        answer = query_accounting(cluster, ids) if accounting else query_queue(cluster)
        answers[cluster] = answers.get(cluster, {}) | answer
    known = {cluster: {id.partition("_")[0] for id in answer} for cluster, answer in answers.items()}
    results: list[Mapping[str, JobInfo] | BatchError] = []
    for submitted in read:
        if isinstance(submitted, BatchError):
            results.append(submitted)
            continue
        statuses, newest, open_ = submitted
        infos = dict.fromkeys(statuses, UNKNOWN)
        for name, task in newest.items():
            cluster, status = task.record.cluster, statuses[name]
            if name in open_:
                infos[name] = _task_info(task, answers[cluster], known[cluster], status)
            else:
                infos[name] = JobInfo("ended", "" if status.state == "complete" else status.state, task.id)
        results.append(infos)
    return results


def _submitted(batch: Batch) -> Submitted | BatchError:
    """What the files of a batch say; an error if they are damaged."""
    try:
        jobs = {job.name: job for job in batch.jobs()} | ({REPORT: batch.report_job()} if batch.then else {})
        statuses = {name: job.status() for name, job in jobs.items()}
        newest = {name: task for name, task in tasks(batch).items() if name in jobs}
        return (
            statuses,
            newest,
            {n: task for n, task in newest.items() if not statuses[n].has_ended_since(task.updated)},
        )
    except Exception as error:  # a file may hold anything
        return unreadable(batch, error)


def _sbatch(submission: Path, name: str, script: str) -> tuple[int, str]:
    """Writes a script and submits it from its folder; returns the array's id, and the cluster if it is another one."""
    with writing(submission / name, kind=BatchError):
        (submission / name).write_text(script, encoding="utf-8")
    answer = call("sbatch", "--parsable", name, cwd=submission).strip()
    id, _, cluster = answer.splitlines()[-1].partition(";") if answer else ("", "", "")
    if not id.isdigit():
        raise BatchError(f"sbatch should have printed the job id of {submission / name}; got {answer!r}")
    return int(id), cluster


def _undo(submission: Path, accepted: Sequence[Accepted]) -> str:
    """Cancels the accepted part of a submission that failed and renames its folder, so that it no longer counts.

    Args:
        accepted: from memory, since its record may not have been written.
    Returns:
        In words, where the last script is, and what SLURM did not cancel.
    """
    refused = submission.with_name(REFUSED)
    lines = [f"the script is in {refused}"]
    for cluster in sorted({cluster for cluster, _ in accepted}):
        ids = [str(id) for name, id in accepted if name == cluster]
        try:
            cancel_tasks(cluster, ids)
        except BatchError as error:
            lines.append(f"SLURM has accepted {', '.join(ids)} and did not cancel them; use scancel: {error}")
    shutil.rmtree(refused, ignore_errors=True)
    submission.rename(refused)
    return "\n".join(lines)


def _task_info(task: Task, answers: Mapping[str, JobInfo], arrays: Collection[str], status: JobStatus) -> JobInfo:
    """What SLURM knows about a task. Without an answer, SLURM has forgotten it or does not know it yet.

    Args:
        answers: SLURM's answers by task id.
        arrays: ids of the arrays in the answers.
        status: of the job.
    """
    answer = answers.get(task.id)
    if answer is None and str(task.array) in arrays and status.updated == task.updated and not task.log.exists():
        return JobInfo("ended", "CANCELLED before it started", task.id)  # squeue and sacct do not show it
    delay_s = abs(time.time() - task.when)  # where the clock was set back, the delay ends at once
    if answer is None and task.record.accounting and delay_s < ACCOUNTING_DELAY_S:
        return JobInfo("queued", "just submitted", task.id)
    if answer is None:
        return JobInfo("ended", "SLURM has forgotten it", task.id)
    if answer.state == "ended" and answer.reason and status.updated == task.updated and task.log.exists():
        return replace(answer, reason=f"{answer.reason}; see {task.log}")  # it ended before its own log started
    return answer
