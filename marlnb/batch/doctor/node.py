"""The same checks on a compute node: a small job is submitted with the profile's own script and waited for."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marlnb.batch.doctor.check import DoctorRequest, Finding, examine
from marlnb.batch.doctor.files import nearest_folder
from marlnb.batch.doctor.scheduler import slurm_script
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.training.runs.files import read_json, write_atomically

REQUEST, ANSWER, LOG = "request.json", "findings.json", "doctor.log"
POLL_S = 2.0
LIMIT = "00:10:00"
_DROPPED = ("--array=", "--output=", "--signal=", "--requeue", "--open-mode=", "--job-name=", "--time=")


def examine_on_node(subject: DoctorRequest, *, timeout_s: float = 900.0) -> Iterator[Finding]:
    """The findings of a compute node; of this machine where the profile's executor is local.

    Raises:
        BatchError: the scheduler refused, or no answer came in time.
    """
    if subject.profile.executor != "slurm":
        yield from examine(subject.for_node())
        return
    with tempfile.TemporaryDirectory(prefix=".marlnb-doctor-", dir=nearest_folder(subject.folder)) as name:
        folder = Path(name)
        write_atomically(folder / REQUEST, json.dumps(to_json(subject)))
        job = _submit(subject, folder)
        try:
            yield from _answer(folder, job, time.monotonic() + timeout_s)
        finally:
            _end(job)


def examine_request(folder: Path) -> None:
    """What runs on the node: reads the request in a folder, and writes the findings beside it."""
    subject = from_json(read_json(folder / REQUEST)).for_node()
    found = [finding.to_json() for finding in examine(subject)]
    write_atomically(folder / ANSWER, json.dumps({"findings": found}))


def to_json(subject: DoctorRequest) -> dict[str, Any]:
    return {
        "profile": subject.profile.to_json(),
        "folder": str(subject.folder),
        "cwd": str(subject.cwd),
        "notebook": None if subject.notebook is None else str(subject.notebook.absolute()),
        "sweep": subject.sweep.to_json(),
        "made": [str(path) for path in subject.existing],
    }


def from_json(data: Mapping[str, Any]) -> DoctorRequest:
    notebook = None if data["notebook"] is None else Path(data["notebook"])
    existing = tuple(Path(path) for path in data["made"])
    profile, sweep = Profile.from_json(data["profile"]), Sweep.from_json(data["sweep"])
    return DoctorRequest(profile, Path(data["folder"]), Path(data["cwd"]), notebook, sweep, existing)


def node_script(subject: DoctorRequest, folder: Path) -> str:
    """The batch's own script with another last line, so that modules, setup and variables are those of its jobs."""
    lines = slurm_script(subject, folder).splitlines()
    kept = [line for line in lines if not line.startswith(tuple(f"#SBATCH {option}" for option in _DROPPED))]
    python = shlex.split(kept[-1])[1]  # exec PYTHON -m ...
    asked = [f"#SBATCH --time={LIMIT}", "#SBATCH --job-name=marlnb-doctor", f'#SBATCH --output="{folder / LOG}"']
    words = shlex.join([python, "-m", "marlnb.batch.doctor", str(folder)])
    return "\n".join([kept[0], *asked, *kept[1:-1], f"exec {words}"]) + "\n"


def _submit(subject: DoctorRequest, folder: Path) -> str:
    from marlnb.batch.slurm.commands import call

    script = folder / "doctor.sbatch"
    script.write_text(node_script(subject, folder), encoding="utf-8")
    said = call("sbatch", "--parsable", str(script))
    found = re.search(r"\d+", said)
    if found is None:
        raise BatchError(f"sbatch did not say what the job is called: {said!r}")
    print(f"asking a node, by job {found[0]}; it may wait in the queue", file=sys.stderr, flush=True)
    return found[0]


def _answer(folder: Path, job: str, deadline: float) -> Iterator[Finding]:
    ended = False
    while True:
        if (folder / ANSWER).is_file():
            yield from (Finding(**data) for data in read_json(folder / ANSWER)["findings"])
            return
        if ended or time.monotonic() > deadline:
            break
        ended = _has_ended(job)
        time.sleep(POLL_S)  # after its end, once more: file servers tell late
    log = folder / LOG
    said = log.read_text(errors="replace").strip()[-1500:] if log.exists() else ""
    if not ended:
        raise BatchError(f"job {job} had no answer in time: is the partition busy? `squeue -j {job}` tells")
    if said:
        yield Finding("node", "fail", f"the job on the node ended without an answer; it said: {said}", "see its words")
    else:
        text = f"a job ran on a node and nothing of it arrived in {folder.parent}"
        yield Finding("node", "fail", text, "the node does not see that folder: give --out one that nodes share")


def _has_ended(job: str) -> bool:
    from marlnb.batch.slurm.commands import call

    try:
        state = call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()
    except BatchError as error:
        if "Invalid job id" in str(error):
            return True  # forgotten already
        raise
    return state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED")


def _end(job: str) -> None:
    from marlnb.batch.slurm.commands import call

    try:
        call("scancel", "--quiet", job)
    except BatchError as error:  # it has ended, or the controller is gone: the job's own limit ends it
        print(f"job {job} could not be cancelled: {error}", file=sys.stderr)
