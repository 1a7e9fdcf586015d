"""JobProcess: the process that executes a job on cores and GPUs of its own, and the signals that end it in time."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marlnb.batch.job.job import Job
from marlnb.batch.job.progress import begun_run
from marlnb.batch.local.machine import VISIBLE
from marlnb.batch.profile import Profile
from marlnb.training.runs.files import STATUS, STOP, read_json

SAVE_S = 120.0
"""How long a job that was told to end may take to save before it is killed."""
KILL_WAIT_S = 30.0
"""How long after the time limit a job is killed; SLURM's KillWait."""
PR_SET_PDEATHSIG = 1
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
OF_ALLOCATIONS = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
OF_JOB = "MARLNB_JOB"

Plan = list[tuple[float, signal.Signals]]


@dataclass
class JobProcess:
    """A job being executed.

    Attributes:
        frames: how many its training had when this process began.
        plan: signals still to be sent, each with the time (monotonic, in seconds) at which it is due.
        sent: the last of them that was sent.
        asked: why it is made to end, empty while only a time limit would: cancelled, or interrupted.
    """

    job: Job
    popen: subprocess.Popen[bytes]
    cores: list[str]
    gpus: list[str]
    frames: int
    plan: Plan
    sent: signal.Signals | None = None
    asked: str = ""
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def begin(job: Job, profile: Profile, cores: list[str], gpus: list[str]) -> JobProcess:
        """Raises OSError when the process cannot be started."""
        words = [profile.python or sys.executable, "-m", "marlnb.batch.job.run_job", str(job.folder)]
        with open(job.log, "ab") as log:
            popen = subprocess.Popen(
                words,
                cwd=job.folder,
                env=environment(os.environ, job, profile, gpus),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_tied_to(os.getpid(), [int(core) for core in cores]),
            )
        return JobProcess(job, popen, cores, gpus, frames_of(job), limit_plan(profile))

    def cancel(self) -> None:
        """Asks the job to stop and save, as `marlnb stop` does; it is ended if it does not. To be called again and
        again: a job that is only beginning takes the file away."""
        if not self.asked:
            now = time.monotonic()
            self.asked = "cancelled"
            self.plan = [(now + SAVE_S, signal.SIGTERM), (now + SAVE_S + KILL_WAIT_S, signal.SIGKILL)]
        stop = self.job.folder / STOP
        if not stop.exists() and self.popen.poll() is None:
            stop.write_text("cancelled", encoding="utf-8")

    def interrupt(self, *, at_once: bool = False) -> None:
        """Tells the job to save and end, to be gone on with later; `at_once` kills it."""
        now = time.monotonic()
        if at_once:
            self.plan = [(now, signal.SIGKILL)] if self.sent != signal.SIGKILL else []
        elif self.asked != "interrupted":
            self.plan = [(now, signal.SIGTERM), (now + SAVE_S, signal.SIGKILL)]
        self.asked = self.asked or "interrupted"

    def advance(self) -> signal.Signals | None:
        """Sends the signal that is due, if one is, and returns it.

        It goes to the process that executes the notebook, which knows what to do; KILL to all that it started too.
        """
        if not self.plan or self.plan[0][0] > time.monotonic() or self.popen.poll() is not None:
            return None
        _, self.sent = self.plan.pop(0)
        if self.sent == signal.SIGKILL:
            self.end_leftovers()
        self.popen.send_signal(self.sent)
        return self.sent

    def end_leftovers(self) -> None:
        """Kills what is left of the job: its kernel has a session of its own, and would train on unwatched."""
        for pid in processes_of(self.job.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @property
    def is_limited(self) -> bool:
        """Whether the time limit has begun to end it."""
        return self.sent is not None and not self.asked

    def has_headway(self) -> bool:
        """Whether its training went on since this process began."""
        return frames_of(self.job) > self.frames

    def outcome(self) -> str:
        """How the process ended, in words."""
        code = self.popen.wait()
        words = {0: "complete", 1: "failed", 75: "interrupted", 130: "stopped"}.get(code, f"exit code {code}")
        told = f"killed by {signal.Signals(-code).name}" if code < 0 else words
        if self.is_limited:
            return f"time limit: {told}"
        reason = self.job.status().reason if code in (1, 75, 130) else ""
        return f"{told} ({reason})" if reason else told


def limit_plan(profile: Profile) -> Plan:
    """A warning, a request and a kill around the time limit of a job that begins now."""
    if profile.time_limit_s is None:
        return []
    limit = time.monotonic() + profile.time_limit_s
    warned, killed = limit - profile.warn_s, limit + KILL_WAIT_S
    return [(warned, signal.SIGUSR1), (limit, signal.SIGTERM), (killed, signal.SIGKILL)]


def environment(inherited: Mapping[str, str], job: Job, profile: Profile, gpus: Sequence[str]) -> dict[str, str]:
    """Variables of a job's process: as many threads as it has cores, its GPUs, and its own before all.

    What says that this process is an allocation's is left out: a job here has no right to requeue it.
    """
    own = {name: value for name, value in inherited.items() if name not in OF_ALLOCATIONS}
    own |= {name: str(profile.cores) for name in THREADS}
    own[OF_JOB] = str(job.folder)
    if profile.gpus:
        own[VISIBLE] = ",".join(gpus)
    return {**own, **job.environment}


def processes_of(folder: Path) -> list[int]:
    """A job's process and what it started, directly or not, as far as this user may see."""
    mark, found = f"{OF_JOB}={folder}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # somebody else's, or gone
            continue
        if mark in variables:
            found.append(int(entry.name))
    return found


def frames_of(job: Job) -> int:
    """How far the training that the job began is, 0 where it has begun none."""
    file = begun_run(job.folder) / STATUS
    return int(read_json(file).get("frames", 0)) if file.exists() else 0


def _tied_to(parent: int, cores: Sequence[int]) -> Callable[[], None]:
    """What the new process does before it becomes the job: it takes its cores, and is told to save when we die."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def tie() -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it died meanwhile
                os._exit(os.EX_TEMPFAIL)

    return tie
