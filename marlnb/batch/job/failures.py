"""What a failed job tells: which job, which values, which cell, what it said last, and how to run just that again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from marlnb.batch.job.job import Job, JobStatus

LAST_LINES = 15
MOST_LINES = 1000
FIRST_LINES = 5
LONGEST_LINE = 200


def describe_failure(job: Job, status: JobStatus | None = None) -> str:
    """Some lines about a job that failed, was interrupted or stopped, for a terminal or a log.

    Args:
        status: as `job.status()` says, where it is known already.
    """
    status = status or job.status()
    lines = [f"job {job.name}: {status.state}" + (f": {status.reason}" if status.reason else "")]
    lines += [f"  parameters  {json.dumps(dict(job.parameters), ensure_ascii=False)}"]
    if status.error is not None:
        lines += [f"  cell {status.error.cell} of {status.n_cells}", *_indented(_first(status.error.source))]
        lines += [f"  {status.error.name}: {status.error.message}".rstrip(": ")]
        lines += _indented(status.error.traceback.splitlines()[-LAST_LINES:])
    lines += [f"  the end of {job.log}", *_indented(_said_last(job, status))]
    lines += ["  to run just this again", f"    {command_again(job)}"]
    return "\n".join(lines)


def command_again(job: Job) -> str:
    """The command that runs one job again."""
    if job.folder.parent.name == "jobs" and (job.folder.parent.parent / "batch.json").is_file():
        batch = job.folder.parent.parent
        return f"marlnb batch {shlex.quote(str(batch))} --only {shlex.quote(job.name)}"
    if (job.folder.parent / "batch.json").is_file():  # its report
        return f"marlnb batch {shlex.quote(str(job.folder.parent))} --only {shlex.quote(job.name)}"
    words = ["python", "-m", "marlnb.batch.job.execute", str(job.notebook), "--out", str(job.folder)]
    for name, value in job.parameters.items():
        words += ["-p", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def verdict(status: JobStatus) -> str:
    """The line by which an attempt's end is told in the job's log; a failure is told in full after it."""
    return f"attempt {status.attempt}: {status.state}" + (f" ({status.reason})" if status.reason else "")


def _said_last(job: Job, status: JobStatus) -> list[str]:
    """What the log held when the attempt ended, without what is told here."""
    lines, told = last_lines(job.log, MOST_LINES), verdict(status).splitlines()[0]
    ends = [number for number, line in enumerate(lines) if line.endswith(told)]
    return lines[: ends[-1] if ends else None][-LAST_LINES:]


def last_lines(log: Path, count: int = LAST_LINES) -> list[str]:
    """The last lines of a log; none where there is none."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-count:]


def _first(source: str) -> list[str]:
    lines = source.splitlines()
    return lines[:FIRST_LINES] + (["..."] if len(lines) > FIRST_LINES else [])


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line[:LONGEST_LINE]}" for line in lines]
