"""The scheduler: asked, with the very script of the batch, whether it would take it. Nothing is submitted."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.check import Answer, Subject, check
from marlnb.batch.profile import Profile
from marlnb.errors import BatchError


@check("executor")
def _executor(subject: Subject) -> Iterator[Answer]:
    """Raises BatchError, which `examine` tells, for what the executor itself refuses."""
    batch = subject.as_batch()
    if subject.on_node:  # sbatch need not be there; scontrol is what a job asks to be begun again
        yield from _requeues(subject)
        return
    batch.executor().check()
    if subject.profile.executor == "slurm":
        yield from _accepted(subject)
    else:
        yield "ok", f"the executor {subject.profile.executor!r} can run jobs here", ""


def _accepted(subject: Subject) -> Iterator[Answer]:
    from marlnb.batch.slurm.commands import call

    batch = subject.as_batch()
    with tempfile.TemporaryDirectory(prefix="marlnb-") as folder:
        script = Path(folder) / "script.sbatch"
        script.write_text(slurm_script(subject, Path(folder)), encoding="utf-8")
        try:
            call("sbatch", "--test-only", str(script))
        except BatchError as error:
            yield (
                "fail",
                str(error).replace(str(script), "the batch's script"),
                "change the profile, or --set key=value",
            )
            return
    yield "ok", "SLURM would take the batch's script (sbatch --test-only)", ""
    yield from waits_for_ever(batch.executor().profile, call("sinfo", "--noheader", "--format=%P|%l|%a"))


def waits_for_ever(profile: Profile, partitions: str) -> Iterator[Answer]:
    """What SLURM takes and never begins: a job longer than its partition's limit, a partition that is down.

    Args:
        partitions: a line for each, `name|limit|up`; a `*` marks the default one.
    """
    asked = (profile.partition or "").split(",")
    for line in dict.fromkeys(partitions.split()):
        name, limit, state = line.split("|")
        is_asked = name.rstrip("*") in asked or (not profile.partition and name.endswith("*"))
        if not is_asked:
            continue
        most, wanted = seconds_of(limit), profile.time_limit_s
        if most is not None and wanted is not None and wanted > most:
            text = f"time_limit {profile.time_limit} is more than partition {name.rstrip('*')} allows, {limit}"
            yield "fail", f"{text}: jobs would wait for ever", "give less: a job that is cut off goes on by itself"
        if state != "up":
            yield (
                "fail",
                f"partition {name.rstrip('*')} is {state}: jobs would wait",
                "choose another, or ask its admins",
            )


def seconds_of(limit: str) -> int | None:
    """Of SLURM's `1-02:00:00`, `02:00:00`, `30:00`; None for `infinite`."""
    if not re.fullmatch(r"(?:\d+-)?\d+(?::\d+){0,2}", limit):
        return None
    days, _, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    parts = [*parts, *[0] * (3 - len(parts))] if days else [*[0] * (3 - len(parts)), *parts]
    return int(days or 0) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


def slurm_script(subject: Subject, folder: Path) -> str:
    """The sbatch script of the batch, as its executor writes it."""
    from marlnb.batch.slurm.script import array_script, parts

    batch = subject.as_batch()
    executor = batch.executor()
    (part, *_) = parts(1, 1)
    return array_script(batch, executor.profile, folder, part, 1)


def _requeues(subject: Subject) -> Iterator[Answer]:
    job = os.environ.get("SLURM_JOB_ID")
    if subject.profile.executor != "slurm" or not job:
        return
    from marlnb.batch.slurm.commands import call

    try:
        call("scontrol", "show", "job", job)
    except BatchError as error:
        remedy = "jobs then end at their time limit, and `marlnb watch` has to begin them again"
        yield "warn", f"scontrol does not answer on the node, so no job can ask to be begun again: {error}", remedy
    else:
        yield "ok", f"scontrol answers on the node {os.uname().nodename}", ""
