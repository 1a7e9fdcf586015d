"""A SLURM cluster: one array a submission, from a script that stays on disk beside what SLURM answered."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from marlnb.batch.batch import REPORT, SUBMISSIONS, Batch
from marlnb.batch.executor import Executor, Known
from marlnb.batch.job.job import Job, JobStatus
from marlnb.batch.profile import Profile, with_changes
from marlnb.batch.slurm.commands import call
from marlnb.batch.slurm.queue import Site, ask_accounting, ask_queue, ask_site, cancel_tasks
from marlnb.batch.slurm.record import RECORD, Array, Record, Task, tasks
from marlnb.batch.slurm.refusals import check_path, check_profile
from marlnb.batch.slurm.script import REPORT_SCRIPT, array_script, parts, report_script
from marlnb.errors import BatchError
from marlnb.registry import executor
from marlnb.training.runs.files import STOP

SBATCH_DEFAULTS = {
    "partition": "SBATCH_PARTITION",
    "account": "SBATCH_ACCOUNT",
    "qos": "SBATCH_QOS",
    "constraint": "SBATCH_CONSTRAINT",
    "time_limit": "SBATCH_TIMELIMIT",
}
REFUSED = "refused"
NEWS_S = 300.0
"""How long after a submission a database may not have heard of it."""
USUAL_SITE = Site(largest_array=1001, accounting=False)  # SLURM's own defaults


@executor("slurm")
class SlurmExecutor(Executor):
    """Submits with sbatch, asks squeue or sacct, ends with scancel.

    Defaults that the user has set for sbatch (`SBATCH_ACCOUNT` and the like) fill what the profile leaves open, and
    stand in the script as the rest does.
    """

    ask_every_s = 30.0  # sites ask not to be polled more often

    def __init__(self, profile: Profile) -> None:
        own = {key: os.environ.get(name) for key, name in SBATCH_DEFAULTS.items() if getattr(profile, key) is None}
        super().__init__(with_changes(profile, {key: value for key, value in own.items() if value}))

    def check(self) -> None:
        check_profile(self.profile)
        call("sbatch", "--version")

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        """The scripts, with SLURM's usual limit where there is no SLURM to ask."""
        check_profile(self.profile)
        check_path(batch.path)
        try:
            site = ask_site()
        except BatchError:
            site = USUAL_SITE
        number = 1 + max((int(folder.name) for folder in batch.submissions()), default=0)
        submission = batch.path / SUBMISSIONS / str(number)
        found = {}
        cut = parts(len(jobs), site.largest_array)
        for part in cut:
            after = f"<id of part {part.number - 1}>" if part.number > 1 and self.profile.at_once else ""
            script = array_script(batch, self.profile, submission, part, len(cut), after)
            found[part.script] = script
        if then:
            ids = [f"<id of part {part.number}>" for part in cut] if len(cut) > 1 else ["<id of the array>"][: len(cut)]
            found[REPORT_SCRIPT] = report_script(batch, self.profile, submission, ids)
        return "\n".join(f"# {submission / name}\n{script}" for name, script in found.items())

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        check_profile(self.profile)
        check_path(batch.path)
        site, before = ask_site(), tasks(batch)
        if site.largest_array < 1:
            raise BatchError("this SLURM takes no arrays (MaxArraySize=0 in its configuration): ask its administrators")
        waits_for = self._still_running(batch, jobs, before) if then else []
        submission = batch.begin_submission(jobs, then=then, reason=reason)
        _clear_stops(jobs)
        record = Record(site.accounting if self.profile.accounting is None else self.profile.accounting)
        try:
            record = self._submit_arrays(batch, submission, record, len(jobs), site.largest_array)
            if then and waits_for is not None:
                record = self._submit_report(batch, submission, record, waits_for, before)
        except BatchError as error:
            refused = _take_back(submission)
            batch.log_event(f"SLURM refused {len(jobs)} jobs: {error}")
            raise BatchError(f"{error}\nwhat was refused is kept in {refused}") from error
        ids = ", ".join(str(array.id) for array in record.arrays)
        if then and record.report is None:
            batch.log_event("the report was not submitted: some jobs are neither complete nor submitted")
        return f"slurm {ids}" + (f", the report {record.report}" if record.report is not None else "")

    def known(self, batch: Batch) -> Mapping[str, Known]:
        named = {job.name: job for job in batch.jobs()} | ({REPORT: batch.report_job()} if batch.then else {})
        given, statuses = tasks(batch), {name: job.status() for name, job in named.items()}
        given = {name: task for name, task in given.items() if name in named}
        open_ = {name: task for name, task in given.items() if not _settled(statuses[name], task)}
        answers: dict[str, Known] = {}
        for cluster in sorted({task.record.cluster for task in open_.values()}):
            answers |= self._ask([task for task in open_.values() if task.record.cluster == cluster])
        arrays = {id.partition("_")[0] for id in answers}
        found = dict.fromkeys(named, Known("unknown"))
        for name, task in given.items():
            if name in open_:
                found[name] = _told(task, answers, arrays, statuses[name])
            else:
                found[name] = Known(
                    "ended", "" if statuses[name].state == "complete" else statuses[name].state, task.id
                )
        return found

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Jobs that run are asked to save and end; asked a second time, SLURM ends them. The others never begin.

        A file asks them, which a job heeds within seconds: after `scancel` it would have KillWait, 30 s or so, to save.

        Raises:
            BatchError: SLURM does not answer.
        """
        given, ending = tasks(batch), []
        for job in jobs:
            status = job.status()
            if job.name in given and _settled(status, given[job.name]):
                continue
            if job.is_held and not (job.folder / STOP).exists():
                (job.folder / STOP).write_text("cancelled\n", encoding="utf-8")
                continue
            if not job.is_held:
                job.write_status(replace(status, state="stopped", reason="cancelled"))
            if job.name in given:
                ending.append(given[job.name])
        for cluster in sorted({task.record.cluster for task in ending}):
            cancel_tasks(cluster, [task.id for task in ending if task.record.cluster == cluster])

    def _ask(self, wanted: Sequence[Task]) -> dict[str, Known]:
        record = wanted[0].record
        accounting = record.accounting if self.profile.accounting is None else self.profile.accounting
        if accounting:
            return ask_accounting(record.cluster, [task.array for task in wanted])
        return ask_queue(record.cluster)

    def _submit_arrays(self, batch: Batch, submission: Path, record: Record, count: int, largest: int) -> Record:
        cut, after = parts(count, largest), ""
        for part in cut:
            script = array_script(batch, self.profile, submission, part, len(cut), after)
            id, cluster = _sbatch(submission, part.script, script)
            record = replace(record, cluster=cluster, arrays=(*record.arrays, Array(id, part)))
            record.write(submission)
            after = str(id) if self.profile.at_once else ""
        return record

    def _submit_report(
        self, batch: Batch, submission: Path, record: Record, waits_for: Sequence[str], before: Mapping[str, Task]
    ) -> Record:
        """After this submission's arrays, and jobs of earlier ones that still run; an earlier report is taken back."""
        job = batch.report_job()
        job.write()
        if REPORT in before and not _settled(job.status(), before[REPORT]):
            cancel_tasks(before[REPORT].record.cluster, [before[REPORT].id])
        after = [*(str(array.id) for array in record.arrays), *waits_for]
        script = report_script(batch, self.profile, submission, after)
        id, cluster = _sbatch(submission, REPORT_SCRIPT, script)
        record = replace(record, cluster=cluster, report=id)
        record.write(submission)
        return record

    def _still_running(self, batch: Batch, jobs: Sequence[Job], before: Mapping[str, Task]) -> list[str] | None:
        """Ids of earlier tasks that a report must wait for; None when a job is neither complete nor will be."""
        now = {job.name for job in jobs}
        others = [job.name for job in batch.unfinished() if job.name not in now]
        if not others:
            return []
        known = self.known(batch)
        alive = [name for name in others if known[name].state in ("queued", "running")]
        return [before[name].id for name in alive] if len(alive) == len(others) else None


def _sbatch(submission: Path, name: str, script: str) -> tuple[int, str]:
    """Writes a script and submits it from its folder: the array's id, and the cluster where it is another."""
    (submission / name).write_text(script, encoding="utf-8")
    answer = call("sbatch", "--parsable", name, cwd=submission).strip()
    id, _, cluster = answer.splitlines()[-1].partition(";") if answer else ("", "", "")
    if not id.isdigit():
        raise BatchError(f"sbatch answered {answer!r} instead of the id of {submission / name}")
    return int(id), cluster


def _take_back(submission: Path) -> Path:
    """Ends what a submission that was refused halfway has begun, and sets its folder aside: it does not count as one.

    Returns the folder `submissions/refused`, where the last refused script can be read.
    """
    if (submission / RECORD).exists():
        record = Record.read(submission)
        with suppress(BatchError):  # the first error is the one to tell
            cancel_tasks(record.cluster, [str(array.id) for array in record.arrays])
    refused = submission.with_name(REFUSED)
    shutil.rmtree(refused, ignore_errors=True)
    submission.rename(refused)
    return refused


def _clear_stops(jobs: Sequence[Job]) -> None:
    """A request to stop was meant for an attempt before this one."""
    for job in jobs:
        (job.folder / STOP).unlink(missing_ok=True)


def _settled(status: JobStatus, task: Task) -> bool:
    """Whether a job's own files say that it has ended for good since it was submitted."""
    return status.state == "complete" or (status.state in ("failed", "stopped") and status.updated >= task.when)


def _told(task: Task, answers: Mapping[str, Known], arrays: Collection[str], status: JobStatus) -> Known:
    """What SLURM says of a task; where it says nothing, it has forgotten it, or has not heard of it yet.

    Args:
        arrays: those of which it says anything.
    """
    answer = answers.get(task.id)
    if answer is None and str(task.array) in arrays and status.updated < task.when and not task.log.exists():
        return Known("ended", "CANCELLED before it began", task.id)  # which leaves no trace in squeue and sacct
    if answer is None and task.record.accounting and time.time() - task.when < NEWS_S:
        return Known("queued", "just submitted", task.id)
    if answer is None:
        return Known("ended", "SLURM has forgotten it", task.id)
    if answer.state == "ended" and answer.reason and status.updated < task.when and task.log.exists():
        return replace(answer, reason=f"{answer.reason}; see {task.log}")  # it ended before its own log began
    return answer
