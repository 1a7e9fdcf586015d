"""Checks that the scheduler would accept the batch's script. Nothing is submitted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.executor import executor_of
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.sbatch_defaults import seconds_of, with_sbatch_defaults
from marlnb.errors import BatchError


@check("executor")
def _executor(request: DoctorRequest) -> Iterator[Answer]:
    """The executor's own check raises BatchError, which `examine` turns into a finding."""
    if request.on_node:  # a node may lack sbatch; a job needs scontrol to be requeued
        yield from _requeues(request)
        return
    executor_of(request.as_batch()).check()
    if request.profile.executor == "slurm":
        yield from _accepted(request)
    elif request.profile.executor == "ray":
        yield from _has_room(request.profile)
    else:
        yield "ok", f"the executor {request.profile.executor!r} can run jobs here", ""


def _accepted(request: DoctorRequest) -> Iterator[Answer]:
    from marlnb.batch.slurm.commands import call

    with tempfile.TemporaryDirectory(prefix="marlnb-") as folder:
        script = Path(folder) / "script.sbatch"
        script.write_text(slurm_script(request, Path(folder)), encoding="utf-8")
        try:
            call("sbatch", "--test-only", str(script))
        except BatchError as error:
            text = str(error).replace(str(script), "the batch's script")
            yield "fail", text, "change the profile, or --set key=value"
            return
    yield "ok", "SLURM accepts the batch's script (sbatch --test-only)", ""
    profile = with_sbatch_defaults(request.profile)
    yield from never_starting(profile, call("sinfo", "--noheader", "--format=%P|%l|%a"))


def _has_room(profile: Profile) -> Iterator[Answer]:
    """Whether a node of the Ray cluster is large enough for a job."""
    from marlnb.batch.ray.cluster import RayCluster

    cluster = RayCluster.find()
    largest = cluster.largest_node()
    requested = (("cores", "CPU"), ("gpus", "GPU"), ("memory_gb", "memory"))
    for key, name in requested:
        value = getattr(profile, key) or 0
        if value > largest[name]:
            text = f"{key} is {value:g}, and no node has more than {largest[name]:g}: jobs would not start"
            yield "fail", f"Ray at {cluster.address}: {text}", f"set {key} lower, or add a node"
            return
    room = f"{largest['CPU']:g} cores, {largest['GPU']:g} GPUs and {largest['memory']:.1f} GB"
    yield "ok", f"Ray {cluster.version()} answers at {cluster.address}; its largest node has {room}", ""


def never_starting(profile: Profile, partitions: str) -> Iterator[Answer]:
    """Jobs that SLURM accepts and never starts: longer than their partition's limit, or in a partition that is down.

    Args:
        profile: the profile of the jobs.
        partitions: one line per partition, `name|limit|up`; a `*` marks the default one.
    """
    requested = (profile.partition or "").split(",")
    for line in dict.fromkeys(partitions.split()):
        name, limit, state = line.split("|")
        is_requested = name.rstrip("*") in requested or (not profile.partition and name.endswith("*"))
        if not is_requested:
            continue
        limit_s, requested_s = seconds_of(limit), profile.time_limit_s
        if limit_s is not None and requested_s is not None and requested_s > limit_s:
            text = f"time_limit {profile.time_limit} is more than partition {name.rstrip('*')} allows, {limit}"
            yield "fail", f"{text}: jobs would never start", "set it lower: a job that reaches it continues by itself"
        if state != "up":
            text = f"partition {name.rstrip('*')} is {state}: jobs would not start"
            yield "fail", text, "choose another, or ask its admins"


def slurm_script(request: DoctorRequest, folder: Path) -> str:
    """The sbatch script of the batch, as its executor would write it."""
    from marlnb.batch.slurm.script import array_script, parts

    return array_script(request.as_batch(), with_sbatch_defaults(request.profile), folder, parts(1, 1)[0], 1)


def _requeues(request: DoctorRequest) -> Iterator[Answer]:
    job = os.environ.get("SLURM_JOB_ID")
    if request.profile.executor != "slurm" or not job:
        return
    from marlnb.batch.slurm.commands import call

    try:
        call("scontrol", "show", "job", job)
    except BatchError as error:
        remedy = "run `marlnb watch`, which restarts jobs that reached their time limit"
        yield "warn", f"scontrol does not work on the node, so jobs cannot requeue themselves: {error}", remedy
    else:
        yield "ok", f"scontrol works on the node {os.uname().nodename}", ""
