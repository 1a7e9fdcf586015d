"""Cost: what a batch's jobs will take, in hours and bytes, and how that is known."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from marlnb.formatting import format_bytes, format_duration

SAMPLE = 20  # finished jobs whose folders are measured


@dataclass(frozen=True)
class Cost:
    """What the jobs that begin will take.

    Attributes:
        n_jobs: how many.
        cores, gpus: of each.
        limit_s: of one attempt of each; None without one.
        seconds: of each, estimated; None where nothing tells.
        size_bytes: of each one's folder at its end, estimated; None where nothing tells.
        source: where the estimates come from, in words.
        free_bytes: on the file system of the batch.
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
        """Whether what is estimated has room; True where nothing is known."""
        return self.size_bytes is None or self.size_bytes * self.n_jobs <= self.free_bytes

    def lines(self) -> list[str]:
        """For a terminal: time and storage."""
        return [f"time     {self._time()}", f"storage  {self._storage()}"]

    def _time(self) -> str:
        each = f"{self.cores} {_plural('core', self.cores)}" + (
            f" and {self.gpus} {_plural('GPU', self.gpus)}" if self.gpus else ""
        )
        if self.limit_s is None:
            most = f"no time limit; each job has {each}"
        else:
            total = format_duration(self.limit_s * self.n_jobs)
            most = f"at most {total} ({format_duration(self.limit_s)} an attempt, each with {each})"
        if self.seconds is None:
            return f"unknown: {self.source}; {most}"
        total_s = self.seconds * self.n_jobs
        charged = f", {format_duration(total_s * (self.gpus or self.cores))} of {'GPUs' if self.gpus else 'cores'}"
        per_job = f"{format_duration(self.seconds)} each, {self.source}"
        return f"about {format_duration(total_s)} of jobs{charged} ({per_job}); {most}"

    def _storage(self) -> str:
        free = f"{format_bytes(self.free_bytes)} are free (a quota may leave less)"
        if self.size_bytes is None:
            return f"unknown: {self.source}; {free}"
        total = format_bytes(self.size_bytes * self.n_jobs)
        return f"about {total} ({format_bytes(self.size_bytes)} each, {self.source}); {free}"


def estimate(batch: Batch, notebook: Path, statuses: Mapping[str, JobStatus], n_jobs: int) -> Cost:
    """Reads the finished jobs of the batch, or what the notebook says of itself in `metadata.marlnb`."""
    finished = [name for name, status in statuses.items() if status.state == "complete"]
    seconds, size, source = _measured(batch, statuses, finished[-SAMPLE:]) if finished else _told(notebook)
    profile = batch.profile
    return Cost(
        n_jobs, profile.cores, profile.gpus, profile.time_limit_s, seconds, size, source, _free_bytes(batch.path)
    )


def folder_bytes(folder: Path) -> int:
    """What a folder takes on disk."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:  # gone meanwhile
                continue
    return total


def _measured(
    batch: Batch, statuses: Mapping[str, JobStatus], names: Sequence[str]
) -> tuple[float | None, float | None, str]:
    source = f"as {len(names)} finished {_plural('job', len(names))} of this batch took"
    times = [statuses[name].seconds for name in names if statuses[name].seconds > 0]
    sizes = [folder_bytes(batch.job(name).folder) for name in names]
    return fmean(times) if times else None, fmean(sizes), source


def _told(notebook: Path) -> tuple[float | None, float | None, str]:
    """`"marlnb": {"minutes": 12, "megabytes": 30}` in the notebook's metadata."""
    told = json.loads(notebook.read_text(encoding="utf-8"))["metadata"].get("marlnb", {})
    minutes, megabytes = told.get("minutes"), told.get("megabytes")
    if minutes is None and megabytes is None:
        return None, None, "no job of this batch has finished yet"
    seconds = None if minutes is None else float(minutes) * 60
    size = None if megabytes is None else float(megabytes) * 1e6
    return seconds, size, f"as {notebook.name} says of itself with its own parameters"


def _free_bytes(path: Path) -> int:
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    return shutil.disk_usage(there).free


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
