"""Run the checks on a compute node, in a small job with the profile's own script."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from marlnb.batch.doctor.check import Finding, examine
from marlnb.batch.doctor.files import nearest_folder
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.doctor.scheduler import slurm_script
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.commands import call
from marlnb.batch.slurm.script import output_option
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.training.runs.files import read_json, write_atomically

REQUEST, ANSWER, LOG = "request.json", "findings.json", "doctor.log"
POLL_S = 2.0
TIME_LIMIT = "00:10:00"
_DROPPED_OPTIONS = ("--array=", "--output=", "--signal=", "--requeue", "--open-mode=", "--job-name=", "--time=")


def examine_on_node(request: DoctorRequest, *, timeout_s: float = 900.0) -> Iterator[Finding]:
    """The findings on a compute node; on this machine if the profile's executor is not SLURM's.

    Raises:
        BatchError: the scheduler refused the job, or it did not answer in time.
    """
    if request.profile.executor != "slurm":
        if request.profile.executor != "local":
            text = f"--on-node sends a job to SLURM only; with {request.profile.executor}, this machine was checked"
            yield Finding("node", "warn", text, "run `marlnb doctor` on a node of the cluster")
        yield from examine(request.for_node())
        return
    with tempfile.TemporaryDirectory(prefix=".marlnb-doctor-", dir=nearest_folder(request.folder)) as name:
        folder = Path(name)
        write_atomically(folder / REQUEST, json.dumps(to_json(request)))
        job = _submit(request, folder)
        try:
            yield from _answer(folder, job, time.monotonic() + timeout_s)
        finally:
            try:
                call("scancel", "--quiet", job)
            except BatchError as error:  # it has ended, or the controller is down: the job's time limit ends it
                print(f"job {job} could not be cancelled: {error}", file=sys.stderr)


def examine_request(folder: Path) -> None:
    """Runs on the node: reads the request in a folder and writes the findings there."""
    request = from_json(read_json(folder / REQUEST)).for_node()
    findings = [asdict(finding) for finding in examine(request)]
    write_atomically(folder / ANSWER, json.dumps({"findings": findings}))


def to_json(request: DoctorRequest) -> dict[str, Any]:
    return {
        "profile": request.profile.to_json(),
        "folder": str(request.folder),
        "cwd": str(request.cwd),
        "notebook": None if request.notebook is None else str(request.notebook.absolute()),
        "sweep": request.sweep.to_json(),
        "made": [str(path) for path in request.existing],
    }


def from_json(data: Mapping[str, Any]) -> DoctorRequest:
    notebook = None if data["notebook"] is None else Path(data["notebook"])
    existing = tuple(Path(path) for path in data["made"])
    profile, sweep = Profile.from_json(data["profile"]), Sweep.from_json(data["sweep"])
    return DoctorRequest(profile, Path(data["folder"]), Path(data["cwd"]), notebook, sweep, existing)


def node_script(request: DoctorRequest, folder: Path) -> str:
    """The batch's script with another last line, so it has the modules, setup and variables of the jobs."""
    lines = slurm_script(request, folder).splitlines()
    kept = [line for line in lines if not line.startswith(tuple(f"#SBATCH {option}" for option in _DROPPED_OPTIONS))]
    python = shlex.split(kept[-1])[1]  # exec PYTHON -m ...
    options = [
        f"#SBATCH --time={TIME_LIMIT}",
        "#SBATCH --job-name=marlnb-doctor",
        f"#SBATCH {output_option(folder / LOG)}",
    ]
    words = shlex.join([python, "-m", "marlnb.batch.doctor", str(folder)])
    return "\n".join([kept[0], *options, *kept[1:-1], f"exec {words}"]) + "\n"


def _submit(request: DoctorRequest, folder: Path) -> str:
    script = folder / "doctor.sbatch"
    script.write_text(node_script(request, folder), encoding="utf-8")
    output = call("sbatch", "--parsable", str(script))
    id = re.search(r"\d+", output)
    if id is None:
        raise BatchError(f"sbatch should have printed a job id; got {output!r}")
    print(f"job {id[0]} runs the checks on a node; it may wait in the queue", file=sys.stderr, flush=True)
    return id[0]


def _answer(folder: Path, job: str, deadline: float) -> Iterator[Finding]:
    ended = False
    while not (folder / ANSWER).is_file() and not ended and time.monotonic() <= deadline:
        ended = _has_ended(job)
        time.sleep(POLL_S)  # after the job's end, look once more: file servers are late
    if (folder / ANSWER).is_file():
        yield from (Finding(**data) for data in read_json(folder / ANSWER)["findings"])
        return
    log = folder / LOG
    output = log.read_text(errors="replace").strip()[-1500:] if log.exists() else ""
    if not ended:
        raise BatchError(
            f"job {job} did not answer in time; check with `squeue -j {job}` whether the partition is busy"
        )
    if output:
        text = f"the job on the node ended without an answer; its output: {output}"
        yield Finding("node", "fail", text, "correct what the output names")
    else:
        text = f"a job ran on a node, and its output did not arrive in {folder.parent}"
        yield Finding("node", "fail", text, "the node cannot see that folder: give --out a folder that nodes share")


def _has_ended(job: str) -> bool:
    try:
        state = call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()
    except BatchError as error:
        if "Invalid job id" in str(error):
            return True  # SLURM has forgotten it
        raise
    return state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED")
