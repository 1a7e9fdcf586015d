"""Cost: the time and storage that a batch's jobs need, with the source of the estimate."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from marlnb.display.formatting import count, format_bytes, format_duration

MAX_MEASURED_JOBS = 20  # finished jobs whose folders are measured


@dataclass(frozen=True)
class Cost:
    """What the submitted jobs need.

    Attributes:
        n_jobs: number of jobs.
        cores: CPU cores per job.
        gpus: GPUs per job.
        limit_s: time limit of one attempt; None without one.
        seconds: estimated seconds per job; None if unknown.
        size_bytes: estimated size of a job's folder at its end; None if unknown.
        source: where the estimates come from, in words.
        free_bytes: free space on the batch's file system.
    """

    n_jobs: int
    cores: int
    gpus: int
    limit_s: int | None
    seconds: float | None
    size_bytes: float | None
    source: str
    free_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the estimated size fits on the disk; True if the size is unknown."""
        return self.size_bytes is None or self.size_bytes * self.n_jobs <= self.free_bytes

    def lines(self) -> list[str]:
        """Two lines for a terminal: time and storage."""
        return [f"time     {self._time()}", f"storage  {self._storage()}"]

    def _time(self) -> str:
        each = count(self.cores, "core") + (f" and {count(self.gpus, 'GPU')}" if self.gpus else "")
        if self.limit_s is None:
            limit = f"no time limit; each job has {each}"
        else:
            total = format_duration(self.limit_s * self.n_jobs)
            limit = f"at most {total} ({format_duration(self.limit_s)} per attempt, each with {each})"
        if self.seconds is None:
            return f"unknown: {self.source}; {limit}"
        total_s = self.seconds * self.n_jobs
        resources = f", {format_duration(total_s * (self.gpus or self.cores))} of {'GPUs' if self.gpus else 'cores'}"
        per_job = f"{format_duration(self.seconds)} each, {self.source}"
        return f"about {format_duration(total_s)} of jobs{resources} ({per_job}); {limit}"

    def _storage(self) -> str:
        free = f"{format_bytes(self.free_bytes)} free (a quota may allow less)"
        if self.size_bytes is None:
            return f"unknown: {self.source}; {free}"
        total = format_bytes(self.size_bytes * self.n_jobs)
        return f"about {total} ({format_bytes(self.size_bytes)} each, {self.source}); {free}"


def estimate(batch: Batch, notebook: Path, statuses: Mapping[str, JobStatus], n_jobs: int) -> Cost:
    """Estimates from the batch's finished jobs, else from the notebook's own figures in `metadata.marlnb`."""
    finished = [name for name, status in statuses.items() if status.state == "complete"]
    estimated = _measured(batch, statuses, finished[-MAX_MEASURED_JOBS:]) if finished else _stated(notebook)
    existing = next(parent for parent in (batch.path, *batch.path.parents) if parent.exists())
    profile, free_bytes = batch.profile, shutil.disk_usage(existing).free
    return Cost(n_jobs, profile.cores, profile.gpus, profile.time_limit_s, *estimated, free_bytes)


def folder_bytes(folder: Path) -> int:
    """Size of a folder on disk."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # deleted in the meantime
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


def _measured(
    batch: Batch, statuses: Mapping[str, JobStatus], names: Sequence[str]
) -> tuple[float | None, float | None, str]:
    source = f"measured on {count(len(names), 'finished job')} of this batch"
    times = [statuses[name].seconds for name in names if statuses[name].seconds > 0]
    sizes = [folder_bytes(batch.job(name).folder) for name in names]
    return fmean(times) if times else None, fmean(sizes), source


def stated_costs(notebook: Path) -> dict[str, Any]:
    """`"marlnb": {"minutes": 12, "megabytes": 30}` in the notebook's metadata; empty without it."""
    return dict(json.loads(notebook.read_text(encoding="utf-8"))["metadata"].get("marlnb", {}))


def _stated(notebook: Path) -> tuple[float | None, float | None, str]:
    stated = stated_costs(notebook)
    minutes, megabytes = stated.get("minutes"), stated.get("megabytes")
    if minutes is None and megabytes is None:
        return None, None, "no job of this batch has finished yet"
    seconds = None if minutes is None else float(minutes) * 60
    size = None if megabytes is None else float(megabytes) * 1e6
    return seconds, size, f"stated by {notebook.name} for its default parameters"
