"""JobProcess: a process that executes a job on its own cores and GPUs, and the signals that end it in time."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from marlnb.batch.job.job import Job
from marlnb.batch.job.training_progress import run_of_job
from marlnb.batch.local.machine import VISIBLE_GPUS
from marlnb.batch.profile import Profile
from marlnb.errors import RunError
from marlnb.training.control import is_requested, request
from marlnb.training.runs.files import JOB_VARIABLE
from marlnb.training.runs.status import read_status

SAVE_S = 120.0  # a job that was asked to end is killed after this time
KILL_WAIT_S = 30.0  # a job is killed this long after its time limit; SLURM's KillWait
PR_SET_PDEATHSIG = 1
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
ALLOCATION_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")

Schedule = list[tuple[float, signal.Signals]]


@dataclass
class JobProcess:
    """The process of a job.

    Attributes:
        job: the job.
        popen: the process.
        cores: numbers of its cores.
        gpus: names of its GPUs.
        frames: frames of its training when this process started.
        schedule: signals to send, each with its time (monotonic, in seconds).
        sent: the last signal that was sent.
        end_request: "cancelled" or "interrupted"; empty if only a time limit ends it.
        started: start of the process (monotonic, in seconds).
    """

    job: Job
    popen: subprocess.Popen[bytes]
    cores: list[str]
    gpus: list[str]
    frames: int
    schedule: Schedule
    sent: signal.Signals | None = None
    end_request: str = ""
    started: float = field(default_factory=time.monotonic)

    @staticmethod
    def start(job: Job, profile: Profile, cores: list[str], gpus: list[str]) -> JobProcess:
        """Starts a process.

        Raises:
            OSError: it cannot be started.
        """
        frames = frames_of(job)
        words = [profile.interpreter, "-m", "marlnb.batch.job.run_job", str(job.folder)]
        with open(job.log, "ab") as log:
            popen = subprocess.Popen(
                words,
                cwd=job.folder,
                env=environment(os.environ, job, profile, gpus),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_prepare_process(os.getpid(), [int(core) for core in cores]),
            )
        return JobProcess(job, popen, cores, gpus, frames, time_limit_schedule(profile))

    def cancel(self) -> None:
        """Asks the job to save and stop, as `marlnb stop` does, and ends it if it does not.

        Call it repeatedly: a job that is just starting deletes the file STOP.
        """
        if not self.end_request:
            now = time.monotonic()
            self.end_request = "cancelled"
            self.schedule = [(now + SAVE_S, signal.SIGTERM), (now + SAVE_S + KILL_WAIT_S, signal.SIGKILL)]
        if not is_requested(self.job.folder, "stop") and self.popen.poll() is None:
            with suppress(OSError):  # a full disk: ask again at the next call, and by a signal in the end
                request(self.job.folder, "stop", "cancelled")

    def interrupt(self, *, at_once: bool = False) -> None:
        """Asks the job to save and end, so that it can continue later; `at_once` kills it."""
        now = time.monotonic()
        if at_once:
            self.schedule = [(now, signal.SIGKILL)] if self.sent != signal.SIGKILL else []
        elif self.end_request != "interrupted":
            self.schedule = [(now, signal.SIGTERM), (now + SAVE_S, signal.SIGKILL)]
        self.end_request = self.end_request or "interrupted"

    def send_due_signal(self) -> signal.Signals | None:
        """Sends the next signal if it is due, and returns it.

        It is sent to the process that executes the notebook; SIGKILL also to the processes that it started.
        """
        if not self.schedule or self.schedule[0][0] > time.monotonic() or self.popen.poll() is not None:
            return None
        _, self.sent = self.schedule.pop(0)
        if self.sent == signal.SIGKILL:
            self.kill_descendants()
        self.popen.send_signal(self.sent)
        return self.sent

    def kill_descendants(self) -> None:
        """Kills the remaining processes of the job: its kernel has its own session and would continue to train."""
        for pid in processes_of(self.job.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @property
    def reached_time_limit(self) -> bool:
        """Whether the time limit ends it."""
        return self.sent is not None and not self.end_request

    def made_progress(self) -> bool:
        """Whether its training advanced since this process started."""
        return frames_of(self.job) > self.frames

    def outcome(self) -> str:
        """How the process ended, in words."""
        code = self.popen.wait()
        words = {0: "complete", 1: "failed", 75: "interrupted", 130: "stopped"}.get(code, f"exit code {code}")
        result = f"killed by {signal.Signals(-code).name}" if code < 0 else words
        if self.reached_time_limit:
            return f"time limit: {result}"
        reason = self.job.status().reason if code in (1, 75, 130) else ""
        return f"{result} ({reason})" if reason else result


def time_limit_schedule(profile: Profile) -> Schedule:
    """SIGUSR1 `warn_s` before, SIGTERM at and SIGKILL after the time limit of a job that starts now.

    Without `warn_s` there is no SIGUSR1: SIGTERM would follow at once, and a second signal ends a job before it saves.
    """
    if profile.time_limit_s is None:
        return []
    limit = time.monotonic() + profile.time_limit_s
    warnings = [(limit - profile.warn_s, signal.SIGUSR1)] if profile.warn_s else []
    return [*warnings, (limit, signal.SIGTERM), (limit + KILL_WAIT_S, signal.SIGKILL)]


def environment(inherited: Mapping[str, str], job: Job, profile: Profile, gpus: Sequence[str]) -> dict[str, str]:
    """Variables of a job's process: threads for its cores, its GPUs, and the job's own variables.

    The variables of a scheduler's allocation are dropped: a local job must not requeue that allocation.
    """
    variables = {name: value for name, value in inherited.items() if name not in ALLOCATION_VARIABLES}
    variables |= {name: str(profile.cores) for name in THREAD_VARIABLES}
    variables[JOB_VARIABLE] = str(job.folder)
    if profile.gpus:
        variables[VISIBLE_GPUS] = ",".join(gpus)
    return {**variables, **job.environment}


def processes_of(folder: Path) -> list[int]:
    """The processes of a job and their descendants, as far as this user can see them."""
    assignment, pids = f"{JOB_VARIABLE}={folder}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # of another user, or ended
            continue
        if assignment in variables:
            pids.append(int(entry.name))
    return pids


def frames_of(job: Job) -> int:
    """Frames of the job's training; 0 without one, or if they cannot be read."""
    try:
        return int(read_status(run_of_job(job.folder))["frames"])
    except (OSError, RunError):
        return 0


def _prepare_process(parent: int, cores: Sequence[int]) -> Callable[[], None]:
    """Runs in the new process before the job: binds it to its cores, and sends it SIGTERM when the parent dies."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def prepare() -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # the parent died before prctl
                os._exit(os.EX_TEMPFAIL)

    return prepare
