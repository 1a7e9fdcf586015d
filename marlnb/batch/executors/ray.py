"""The Ray executor: each job of a batch is a job of a Ray cluster, as `ray job submit` makes them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from marlnb.batch.batch import Batch
from marlnb.batch.executor import Executor, NoSchedulerError, executor, unreadable
from marlnb.batch.job.job import UNKNOWN, Job, JobInfo, JobStatus
from marlnb.batch.local.process import ALLOCATION_VARIABLES
from marlnb.batch.profile import Profile
from marlnb.batch.ray.cluster import ADDRESS_VARIABLES, RayCluster, one_line
from marlnb.batch.ray.submission_record import SubmissionRecord, SubmittedJob, all_submitted_jobs, new_id
from marlnb.batch.slurm.script import RUN_JOB, exports
from marlnb.display.formatting import count
from marlnb.errors import BatchError
from marlnb.training.control import request
from marlnb.training.runs.files import STOP

FORGOTTEN = "Ray does not know it: it was refused, or the cluster was started again"


@executor("ray")
class RayExecutor(Executor):
    """Submits, queries and stops jobs through the API of the dashboard of the cluster that the environment names.

    Ray starts a job when the cluster has the cores, GPUs and memory of the profile. All nodes need this Python and the
    batch's folder at the same paths. The profile's `environment` may hold keys: it is in the files of the jobs, and
    never in what Ray receives, since its dashboard shows that to everyone.
    """

    query_interval_s = 10.0
    unsupported = (
        *("at_once", "time_limit", "partition", "account", "qos", "constraint", "gres", "options", "modules", "setup"),
        "accounting",
    )

    def check(self) -> None:
        check_profile(self.profile)
        RayCluster.find().version()

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        """What each job has in common, as JSON, and the command of each. An id is drawn when a job is submitted."""
        check_profile(self.profile)
        try:
            where = RayCluster.find().address
        except NoSchedulerError:
            where = f"the address of {ADDRESS_VARIABLES[0]}"
        lines = [f"# {count(len(jobs), 'job')} of Ray at {where}, each submitted with"]
        lines += [json.dumps(self._options(), indent=2), "# and the entrypoint", *map(self._entrypoint, jobs)]
        if then:
            report = self._entrypoint(batch.report_job())
            lines += ["# when all are complete, a monitor submits (`marlnb watch`, or `--wait`)", report]
        return "\n".join(lines) + "\n"

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        """As `Executor.submit`; a monitor submits the report, since Ray has no job that waits for others."""
        check_profile(self.profile)
        cluster, options = RayCluster.find(), self._options()
        cluster.version()
        submission = batch.create_submission(jobs, then=then, reason=reason)
        ids = {job.name: new_id(job) for job in jobs}
        SubmissionRecord(cluster.address, ids).write(submission)
        for n_submitted, job in enumerate(jobs):
            (job.folder / STOP).unlink(missing_ok=True)  # a request to stop an earlier attempt
            request = {"submission_id": ids[job.name], "entrypoint": self._entrypoint(job), **options}
            try:
                cluster.submit(request)
            except BatchError as error:
                batch.log_event(f"Ray refused job {job.name}: {error}")
                raise BatchError(f"{error}; {n_submitted} of {count(len(jobs), 'job')} submitted") from error
        if then:
            batch.report_job().write()
            batch.log_event(f"the report is submitted by `marlnb watch {shlex.quote(str(batch.path))}`")
        return f"ray at {cluster.address}"

    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        (answer,) = self.query_all([batch])
        if isinstance(answer, BatchError):
            raise answer
        return answer

    @classmethod
    def query_all(cls, batches: Sequence[Batch]) -> list[Mapping[str, JobInfo] | BatchError]:
        """With one call, however many batches there are; none if all jobs have ended."""
        read, jobs = [_read(batch) for batch in batches], dict[str, JobInfo]()
        if any(isinstance(each, _Submitted) and each.open for each in read):
            cluster = RayCluster.find()
            read = [each if isinstance(each, BatchError) else each.problem_at(cluster) or each for each in read]
            jobs = cluster.jobs()
        return [each if isinstance(each, BatchError) else each.infos(jobs) for each in read]

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Asks running jobs to save and end; a second call lets Ray end them, within 3 s. Other jobs never start.

        If a job was submitted more than once, all of its Ray jobs end.

        Raises:
            BatchError: Ray does not answer, or the jobs are in another cluster than the environment's.
        """
        submitted = _Submitted(batch)
        chosen = [job for job in jobs if job.name in submitted.open or job.name not in submitted.jobs]
        to_ask = [job for job in chosen if job.is_executing and not (job.folder / STOP).exists()]
        to_end = [job for job in chosen if job not in to_ask]
        open_ids = {job.name: submitted.open_ids(job.name) for job in chosen}
        ids = [id for job in to_end for id in open_ids[job.name]]
        ids_if_queued = [id for job in to_ask for id in open_ids[job.name] if len(open_ids[job.name]) > 1]
        cluster = RayCluster.find() if ids or ids_if_queued else None
        if cluster is not None and (problem := submitted.problem_at(cluster)) is not None:
            raise problem
        for job in to_ask:
            request(job.folder, "stop", "cancelled")
        known = cluster.jobs() if cluster is not None else {}
        to_stop = [id for id in ids if id in known]
        to_stop += [id for id in ids_if_queued if id in known and known[id].state == "queued"]
        for id in to_stop:
            if cluster is not None:
                cluster.stop(id)
        for job in to_end:  # after Ray has answered, so that a call that failed can be repeated
            status = submitted.statuses[job.name]
            if not job.is_executing and job.status() == status:  # it has not run in the meantime
                job.write_status(replace(status, state="stopped", reason="cancelled"))

    def _entrypoint(self, job: Job) -> str:
        """The command of a job, which Ray gives to a shell."""
        return shlex.join([self.profile.interpreter, "-m", RUN_JOB, str(job.folder)])

    def _options(self) -> dict[str, Any]:
        """What the jobs have in common, by the keys of Ray's API."""
        memory = int((self.profile.memory_gb or 0) * 1024**3)
        resources = {"num_cpus": self.profile.cores, "num_gpus": self.profile.gpus, "memory": memory}
        # a cluster inside of a SLURM allocation: a job must not requeue that allocation
        public = Profile(cores=self.profile.cores, offline=self.profile.offline)
        variables = dict.fromkeys(ALLOCATION_VARIABLES, "") | exports(public, os.environ)
        chosen = {f"entrypoint_{name}": value for name, value in resources.items() if value}
        return {**chosen, "runtime_env": {"env_vars": variables}}


class _Submitted:
    """What the files of a batch say."""

    def __init__(self, batch: Batch) -> None:
        self.path = batch.path
        jobs = [*batch.jobs(), *([batch.report_job()] if batch.then else [])]
        self.statuses: dict[str, JobStatus] = {job.name: job.status() for job in jobs}
        self.all_jobs = {name: each for name, each in all_submitted_jobs(batch).items() if name in self.statuses}
        self.jobs = {name: each[-1] for name, each in self.all_jobs.items()}

    @property
    def open(self) -> dict[str, SubmittedJob]:
        """Jobs that may not have ended."""
        return {name: job for name, job in self.jobs.items() if not self.statuses[name].has_ended_since(job.updated)}

    def open_ids(self, name: str) -> list[str]:
        """Ids of all Ray jobs of a job that may not have ended."""
        status = self.statuses[name]
        return [job.id for job in self.all_jobs.get(name, ()) if not status.has_ended_since(job.updated)]

    def problem_at(self, cluster: RayCluster) -> BatchError | None:
        """Why the cluster is not asked about these jobs. An address in files, which may come from anyone, never is."""
        others = sorted({job.address for job in self.open.values()} - {cluster.address})
        if not others:
            return None
        return BatchError(
            f"{self.path}: its jobs were submitted to Ray at {one_line(others[0])!r}, and {ADDRESS_VARIABLES[0]} "
            f"names {cluster.address}; set it to that address, or submit the jobs again with --force"
        )

    def infos(self, known: Mapping[str, JobInfo]) -> dict[str, JobInfo]:
        """By job name; `known` are the cluster's jobs by id."""
        infos = dict.fromkeys(self.statuses, UNKNOWN)
        for name, job in self.jobs.items():
            state = self.statuses[name].state
            infos[name] = JobInfo("ended", "" if state == "complete" else state, job.id)
        for name, job in self.open.items():
            infos[name] = known.get(job.id, JobInfo("ended", FORGOTTEN, job.id))
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
    default, unsupported = Profile(), RayExecutor.unsupported
    for name in unsupported:
        if getattr(profile, name) != getattr(default, name):
            known = ", ".join(field.name for field in fields(Profile) if field.name not in unsupported)
            raise BatchError(f"profile: Ray has no {name}; leave it out. Keys for Ray: {known}")
