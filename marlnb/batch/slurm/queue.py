"""Query `squeue`, `sacct` and `scontrol`, and parse their output."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marlnb.batch.job.job import JobInfo, SchedulerState
from marlnb.batch.slurm.commands import call

SQUEUE_FORMAT = "%i|%T|%N|%r"
SACCT_FORMAT = "JobID,State,NodeList,Reason,ExitCode"
# in every other state the job has ended and does not run again by itself
QUEUED = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "CONFIGURING")
RUNNING = ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT")
# reasons that explain the end of a job; squeue also prints stale reasons from the time when the job waited
_END_REASONS = ("JobLaunchFailure", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS")
# a job that waits for one of these never starts by itself
_EXPLANATIONS = {
    "JobHeldUser": "held: `scontrol release` releases it (JobHeldUser)",
    "JobHeldAdmin": "held by an administrator (JobHeldAdmin)",
    "PartitionTimeLimit": "the partition allows less time than time_limit (PartitionTimeLimit)",
    "PartitionConfig": "no node of the partition has the requested resources (PartitionConfig)",
}
_IDS = re.compile(r"(\d+)_\[([\d,\-:]+)(?:%\d+)?\]")


@dataclass(frozen=True)
class Site:
    """The configuration of a cluster.

    Attributes:
        max_array_size: maximum number of tasks of one array.
        accounting: whether there is an accounting database, so that `sacct` works.
    """

    max_array_size: int
    accounting: bool


def read_site(text: str) -> Site:
    """Parses the output of `scontrol show config`."""
    config = dict(re.findall(r"^(\w+)\s*= (.*)$", text, re.MULTILINE))
    max_size = int(config.get("MaxArraySize", "1001"))
    max_tasks = re.search(r"\bmax_array_tasks=(\d+)", config.get("SchedulerParameters", ""))
    accounting = config.get("AccountingStorageType", "").strip()  # else accounting_storage/none, or (null) since 23.11
    return Site(min(max_size, int(max_tasks[1])) if max_tasks else max_size, accounting.endswith("/slurmdbd"))


def query_site() -> Site:
    """The cluster's configuration.

    Raises:
        BatchError: SLURM does not answer.
    """
    return read_site(call("scontrol", "show", "config"))


def query_queue(cluster: str) -> dict[str, JobInfo]:
    """This user's jobs by id, as `17_3`, with one call; the controller forgets jobs some minutes after their end."""
    # without --jobs, which fails for an id that the controller has forgotten
    words = ["--array", "--noheader", "--states=all", f"--user={os.getuid()}", f"--format={SQUEUE_FORMAT}"]
    return read_squeue(call("squeue", *_cluster_option(cluster), *words))


def query_accounting(cluster: str, arrays: Sequence[int]) -> dict[str, JobInfo]:
    """All tasks of the arrays by id, with one call; the database never forgets them."""
    ids = ",".join(map(str, sorted(set(arrays))))
    words = ["--allocations", "--parsable2", "--noheader", f"--format={SACCT_FORMAT}", f"--jobs={ids}"]
    return read_sacct(call("sacct", *_cluster_option(cluster), *words))


def cancel_tasks(cluster: str, ids: Sequence[str]) -> None:
    """Cancels tasks with one call; tasks that have ended are not an error."""
    call("scancel", "--quiet", *_cluster_option(cluster), *ids)


def read_squeue(text: str) -> dict[str, JobInfo]:
    """Parses lines of SQUEUE_FORMAT, one per task."""
    rows = (line.split("|", 3) for line in text.splitlines() if line.count("|") >= 3)
    return {id: _job_info(id, state, node, reason.strip("() ")) for id, state, node, reason in rows}


def read_sacct(text: str) -> dict[str, JobInfo]:
    """Parses lines of SACCT_FORMAT. Tasks that have not started share a line, `17_[3-9%4]`; a task's own line wins."""
    shared: dict[str, JobInfo] = {}
    single: dict[str, JobInfo] = {}
    for line in text.splitlines():
        if line.count("|") < 4:
            continue
        ids, state, node, reason, code = line.split("|")[:5]
        for id in expand(ids):
            info = _job_info(id, state, "" if node == "None assigned" else node, reason, code)
            (single if id == ids else shared)[id] = info
    return {**shared, **single}


def expand(ids: str) -> Iterator[str]:
    """`17_[0-2,7%4]` -> 17_0, 17_1, 17_2, 17_7; `17_3` -> itself."""
    match = _IDS.fullmatch(ids)
    if match is None:
        yield ids
        return
    for part in match[2].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            yield f"{match[1]}_{index}"


def _job_info(id: str, slurm_state: str, node: str, reason: str, code: str = "") -> JobInfo:
    word = slurm_state.split(" ")[0].rstrip("+")
    state: SchedulerState = "queued" if word in QUEUED else "running" if word in RUNNING else "ended"
    reason = "" if reason == "None" else _EXPLANATIONS.get(reason, reason)
    if state == "queued":
        description = reason if word == "PENDING" else ": ".join(filter(None, (word, reason)))
    elif state == "running":
        description = "" if word == "RUNNING" else word
    else:
        if slurm_state == "CANCELLED" and reason == "Dependency":  # sacct's word for a cancellation by SLURM
            reason = "DependencyNeverSatisfied"
        description = _describe_end(slurm_state, reason if reason in _END_REASONS else "", code)
    return JobInfo(state, description, id, node)


def _describe_end(slurm_state: str, reason: str, code: str) -> str:
    """`FAILED, exit code 1`, `FAILED, signal 9`, `CANCELLED by 1000`, `TIMEOUT`; empty for COMPLETED."""
    status, _, number = code.partition(":")
    exit = f"signal {number}" if number not in ("", "0") else f"exit code {status}" if status not in ("", "0") else ""
    return "" if slurm_state == "COMPLETED" else ", ".join(filter(None, (slurm_state, reason, exit)))


def _cluster_option(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []
