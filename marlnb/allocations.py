"""Allocation: this process's share of its machine, and when the share ends.

Read from SLURM's variables, control groups and CPU affinity. A notebook on a cluster can show its share, and a training
run can save before the share ends. Elsewhere an allocation describes the whole machine and has no end.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from marlnb.display.formatting import format_duration
from marlnb.display.notebook_html import facts_html
from marlnb.errors import ConfigError

ENDS_AT = "MARLNB_ENDS_AT"  # seconds since 1970; overrides the scheduler
ASK_TIMEOUT_S = 5.0
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_QUOTA = CGROUPS / "cpu.max"
MEMBERSHIPS = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 1 << 60  # version 1 of control groups writes "no limit" as a number about this large
NO_GPU = ("", "-1", "NoDevFiles")

_known_ends: dict[str, tuple[float | None, str]] = {}  # by job: the scheduler is asked once per process


@dataclass(frozen=True)
class Allocation:
    """This process's share of its machine.

    Attributes:
        scheduler: what limits it; none: only the machine.
        job_id: the scheduler's job number; empty without a scheduler.
        node: the machine's name.
        cores: usable cores.
        gpus: the GPUs as CUDA names them: an index, a UUID or a MIG slice each; None if nothing states them.
        gpu_percent: share of a GPU's multiprocessors (CUDA MPS); None for whole GPUs and MIG slices.
        memory_bytes: the limit; None: the machine's.
        ends_at: when it ends, in seconds since 1970; None: never, or unknown.
        end_unknown: why the end is unknown; empty if it is known, or if there is none.
    """

    scheduler: Literal["slurm", "none"]
    job_id: str
    node: str
    cores: int
    gpus: tuple[str, ...] | None
    gpu_percent: int | None
    memory_bytes: int | None
    ends_at: float | None
    end_unknown: str = ""

    @staticmethod
    def current(*, ask_again: bool = False) -> Allocation:
        """The allocation of this process.

        Args:
            ask_again: ask the scheduler for the end again, because the time limit may have been extended.
        Raises:
            ConfigError: MARLNB_ENDS_AT is not a number.
        """
        job = os.environ.get("SLURM_JOB_ID", "")
        ends_at, unknown = _end(job, ask_again)
        # the scheduler's count, if it does not bind processes to cores
        allocated = _positive(os.environ.get("SLURM_CPUS_ON_NODE")) if job else None
        return Allocation(
            scheduler="slurm" if job else "none",
            job_id=scheduler_id() if job else "",
            node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            cores=min(filter(None, (usable_cores(), allocated))),
            gpus=_gpus(bool(job)),
            gpu_percent=_positive(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")),
            memory_bytes=_memory_bytes(),
            ends_at=ends_at,
            end_unknown=unknown,
        )

    @property
    def time_left_s(self) -> float | None:
        """Seconds until it ends, 0 after its end; None if there is no end, or it is unknown."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.time())

    def describe(self) -> dict[str, str]:
        """Name -> value of its properties, for tables."""
        rows = {"allocation": f"SLURM job {self.job_id}"} if self.job_id else {"allocation": "none: the machine's own"}
        rows |= {"node": self.node, "cores": str(self.cores), "GPUs": self._gpus_in_words()}
        rows["memory"] = "the machine's" if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.3g} GiB"
        rows["time left"] = self._end_in_words()
        return rows

    def __repr__(self) -> str:
        return "Allocation(" + ", ".join(f"{name}: {text}" for name, text in self.describe().items()) + ")"

    def _repr_html_(self) -> str:
        return facts_html("", self.describe())

    def _gpus_in_words(self) -> str:
        if self.gpus is None:
            return "the machine's"
        if not self.gpus:
            return "none"
        share = f", {self.gpu_percent}% of each" if self.gpu_percent else ""
        slices = " (slices of GPUs)" if all(gpu.startswith("MIG-") for gpu in self.gpus) else ""
        return f"{len(self.gpus)}: {', '.join(self.gpus)}{slices}{share}"

    def _end_in_words(self) -> str:
        left = self.time_left_s
        if left is None or self.ends_at is None:
            return f"not known: {self.end_unknown}" if self.end_unknown else "no limit"
        return f"{format_duration(left)}, until {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.ends_at))}"


def allocation() -> Allocation:
    """This notebook's allocation: node, cores, GPUs, memory, and the time left, which is read again at each call."""
    return Allocation.current(ask_again=True)


def usable_cores() -> int:
    """Usable cores by affinity, limited by the container's quota if there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CGROUP_QUOTA.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))


def _end(job: str, ask_again: bool) -> tuple[float | None, str]:
    override = os.environ.get(ENDS_AT)
    if override:
        try:
            return float(override), ""
        except ValueError as error:
            raise ConfigError(
                f"{ENDS_AT} must be seconds since 1970, such as {time.time():.0f}; got {override!r}"
            ) from error
    if not job:
        return None, ""
    # as of the job's start: its time limit may have been changed since
    initial = initial_end() or None
    if initial is not None and not ask_again and job not in _known_ends:
        return initial, ""
    if ask_again or job not in _known_ends:
        answer = _ask_slurm(job)
        if not answer[1]:
            _known_ends[job] = answer
        else:  # keep the earlier answer
            _known_ends.setdefault(job, answer if initial is None else (initial, ""))
    return _known_ends[job]


def _ask_slurm(job: str) -> tuple[float | None, str]:
    """(end, reason): when the job ends, or why that is unknown; (None, "") without a time limit."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}  # seconds since 1970, independent of time zones
    try:
        words = ["squeue", "--noheader", "--jobs", job, "--format", "%e"]
        process = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=ASK_TIMEOUT_S)
    except FileNotFoundError:
        return None, "squeue is not on this node"
    except subprocess.TimeoutExpired:
        return None, f"squeue did not answer within {ASK_TIMEOUT_S:.0f} s"
    answer = process.stdout.strip()
    if answer.isdigit():
        return float(answer), ""
    if process.returncode == 0 and answer in ("N/A", "NONE", "Unknown"):
        return None, ""
    return None, f"squeue answered {(process.stderr.strip() or answer or 'nothing')[:200]!r}"


def initial_end() -> float:
    """When SLURM said, at the start of this job, that it ends, in seconds since 1970; 0.0 if it said nothing."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    return float(end) if end.isdigit() else 0.0


def scheduler_id() -> str:
    """SLURM's id of this job, of an array job as users write it, `17_3`; empty without SLURM."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def _gpus(in_slurm: bool) -> tuple[str, ...] | None:
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        value = os.environ.get(name)
        if value is not None:
            return () if value.strip() in NO_GPU else tuple(part.strip() for part in value.split(","))
    return () if in_slurm else None


def _memory_bytes() -> int | None:
    """The smallest limit that SLURM and the control groups state."""
    variables = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")  # in megabytes; 0: all of the node
    node, core, cores = (_positive(os.environ.get(name)) or 0 for name in variables)
    limits = [*_cgroup_limits(CGROUPS, _read(MEMBERSHIPS)), node << 20, (core * cores) << 20]
    return min(filter(None, limits), default=None)


def _cgroup_limits(root: Path, memberships: str) -> list[int]:
    """Limits in bytes of this process's control group and its parents, for both versions of control groups."""
    limits = []
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        base, name = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = base / path.lstrip("/")
        folders = [folder, *(parent for parent in folder.parents if parent == base or base in parent.parents)]
        limits += [value for path in folders if (value := _positive(_read(path / name))) is not None]
    return [value for value in limits if value < UNLIMITED_BYTES]


def _positive(text: str | None) -> int | None:
    match = re.fullmatch(r"\s*(\d+)\s*", text or "")
    return int(match[1]) or None if match else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
