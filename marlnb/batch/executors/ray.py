"""The Ray executor: each job of a batch is a job of a Ray cluster, as `ray job submit` makes them."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from marlnb.batch.batch import Batch
from marlnb.batch.executor import Executor, executor, unreadable
from marlnb.batch.job.job import UNKNOWN, Job, JobInfo, JobStatus
from marlnb.batch.local.process import ALLOCATION_VARIABLES
from marlnb.batch.profile import Profile
from marlnb.batch.ray.cluster import RayCluster
from marlnb.batch.ray.submission_record import SubmissionRecord, SubmittedJob, submitted_jobs
from marlnb.batch.slurm.script import RUN_JOB, exports
from marlnb.display.formatting import count
from marlnb.errors import BatchError
from marlnb.training.control import request
from marlnb.training.runs.files import STOP

UNSUPPORTED = (
    *("at_once", "time_limit", "partition", "account", "qos", "constraint", "gres", "options", "modules", "setup"),
    "accounting",
)
FORGOTTEN = "Ray does not know it: its cluster was started again"


@executor("ray")
class RayExecutor(Executor):
    """Submits, queries and stops jobs through the API of the cluster's dashboard.

    Ray starts a job when the cluster has the cores, GPUs and memory of the profile. All nodes need this Python and the
    batch's folder at the same paths.
    """

    query_interval_s = 10.0

    def check(self) -> None:
        check_profile(self.profile)
        RayCluster.find().version()

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        check_profile(self.profile)
        lines = [f"# {count(len(jobs), 'job')} of Ray at {RayCluster.find().address}"]
        lines += [" ".join(["ray job submit", *self._options(), "--", self._entrypoint(job)]) for job in jobs]
        if then:
            lines += ["# when all are complete, `marlnb watch` submits", self._entrypoint(batch.report_job())]
        return "\n".join(lines) + "\n"

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        """As `Executor.submit`; a monitor submits the report, since Ray has no job that waits for others."""
        check_profile(self.profile)
        cluster, token = RayCluster.find(), secrets.token_hex(4)
        cluster.version()
        submission = batch.create_submission(jobs, then=then, reason=reason)
        ids = {job.name: f"marlnb-{token}-{index}" for index, job in enumerate(jobs)}
        SubmissionRecord(cluster.address, ids).write(submission)
        for index, job in enumerate(jobs):
            (job.folder / STOP).unlink(missing_ok=True)  # a request to stop an earlier attempt
            try:
                cluster.submit(self._request(job, ids[job.name]))
            except BatchError as error:
                accepted = {earlier.name: ids[earlier.name] for earlier in jobs[:index]}
                SubmissionRecord(cluster.address, accepted).write(submission)
                batch.log_event(f"Ray refused job {job.name}: {error}")
                raise BatchError(f"{error}; {index} of {count(len(jobs), 'job')} submitted") from error
        if then:
            batch.log_event(f"the report is submitted by `marlnb watch {shlex.quote(str(batch.path))}`")
        return f"ray marlnb-{token}"

    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        (answer,) = self.query_all([batch])
        if isinstance(answer, BatchError):
            raise answer
        return answer

    @classmethod
    def query_all(cls, batches: Sequence[Batch]) -> list[Mapping[str, JobInfo] | BatchError]:
        """With one call for each cluster, however many batches there are; none if all jobs have ended."""
        read = [_read(batch) for batch in batches]
        open_ = [job for each in read if not isinstance(each, BatchError) for job in each.open.values()]
        answers = {address: RayCluster(address).jobs() for address in sorted({job.address for job in open_})}
        return [each if isinstance(each, BatchError) else each.infos(answers) for each in read]

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Asks running jobs to save and end; a second call lets Ray end them, within 3 s. Other jobs never start.

        Raises:
            BatchError: Ray does not answer.
        """
        submitted, to_stop = submitted_jobs(batch), []
        for job in jobs:
            status, ray_job = job.status(), submitted.get(job.name)
            if ray_job is not None and status.has_ended_since(ray_job.when):
                continue
            if job.is_executing and not (job.folder / STOP).exists():
                request(job.folder, "stop", "cancelled")
                continue
            if not job.is_executing:
                job.write_status(replace(status, state="stopped", reason="cancelled"))
            if ray_job is not None:
                to_stop.append(ray_job)
        for address in sorted({ray_job.address for ray_job in to_stop}):
            cluster = RayCluster(address)
            known = cluster.jobs()
            for ray_job in to_stop:
                if ray_job.address == address and ray_job.id in known:
                    cluster.stop(ray_job.id)

    def _entrypoint(self, job: Job) -> str:
        return shlex.join([os.path.expanduser(self.profile.python or sys.executable), "-m", RUN_JOB, str(job.folder)])

    def _resources(self) -> dict[str, int]:
        """Of one job, by the keys of Ray's API."""
        memory = int((self.profile.memory_gb or 0) * 1024**3)
        resources = {"num_cpus": self.profile.cores, "num_gpus": self.profile.gpus, "memory": memory}
        return {f"entrypoint_{name}": value for name, value in resources.items() if value}

    def _options(self) -> list[str]:
        return [f"--{name.replace('_', '-')}={value}" for name, value in self._resources().items()]

    def _request(self, job: Job, id: str) -> dict[str, Any]:
        # a cluster inside of a SLURM allocation: a job must not requeue that allocation
        variables = {**dict.fromkeys(ALLOCATION_VARIABLES, ""), **exports(self.profile, os.environ)}
        entrypoint = {"submission_id": id, "entrypoint": self._entrypoint(job)}
        return {**entrypoint, **self._resources(), "runtime_env": {"env_vars": variables}}


class _Submitted:
    """What the files of a batch say."""

    def __init__(self, batch: Batch) -> None:
        jobs = [*batch.jobs(), *([batch.report_job()] if batch.then else [])]
        self.statuses: dict[str, JobStatus] = {job.name: job.status() for job in jobs}
        self.jobs = {name: job for name, job in submitted_jobs(batch).items() if name in self.statuses}

    @property
    def open(self) -> dict[str, SubmittedJob]:
        """Jobs that may not have ended."""
        return {name: job for name, job in self.jobs.items() if not self.statuses[name].has_ended_since(job.when)}

    def infos(self, answers: Mapping[str, Mapping[str, JobInfo]]) -> dict[str, JobInfo]:
        """By job name; `answers` are those of the clusters by address."""
        infos = dict.fromkeys(self.statuses, UNKNOWN)
        for name, job in self.jobs.items():
            state = self.statuses[name].state
            infos[name] = JobInfo("ended", "" if state == "complete" else state, job.id)
        for name, job in self.open.items():
            infos[name] = answers[job.address].get(job.id, JobInfo("ended", FORGOTTEN, job.id))
        return infos


def _read(batch: Batch) -> _Submitted | BatchError:
    try:
        return _Submitted(batch)
    except Exception as error:  # a file may hold anything
        return unreadable(batch, error)


def check_profile(profile: Profile) -> None:
    """Checks that Ray can do what the profile asks for.

    Raises:
        BatchError: it sets a key that Ray has no counterpart of.
    """
    default = Profile()
    for name in UNSUPPORTED:
        if getattr(profile, name) != getattr(default, name):
            known = ", ".join(field.name for field in fields(Profile) if field.name not in UNSUPPORTED)
            raise BatchError(f"profile: Ray has no {name}; leave it out. Keys for Ray: {known}")
