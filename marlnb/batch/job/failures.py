"""Describe a failed job: its parameters, the cell, the end of its log, and the command that runs it again."""

from __future__ import annotations

import json
import shlex
from collections import deque
from pathlib import Path

from marlnb.batch.job.job import Job, JobStatus
from marlnb.text_files import open_ordinary

N_LAST_LINES = 15
MAX_LOG_LINES = 1000
N_SOURCE_LINES = 5
MAX_LINE_LENGTH = 200
BLOCK_BYTES = 64 * 1024
MAX_TAIL_BYTES = 16 * 1024 * 1024


def describe_failure(job: Job, status: JobStatus | None = None) -> str:
    """Some lines about a job that failed, was interrupted or stopped, for a terminal or a log.

    Args:
        status: the job's status; None: read it.
    """
    status = status or job.status()
    lines = [f"job {job.name}: {status.state}" + (f": {status.reason}" if status.reason else "")]
    lines += [f"  parameters  {json.dumps(dict(job.parameters), ensure_ascii=False)}"]
    if status.error is not None:
        source = status.error.source.splitlines()
        source = source[:N_SOURCE_LINES] + (["..."] if len(source) > N_SOURCE_LINES else [])
        lines += [f"  cell {status.error.cell} of {status.n_cells}", *_indented(source)]
        lines += [f"  {status.error.name}: {status.error.message}".rstrip(": ")]
        lines += _indented(status.error.traceback.splitlines()[-N_LAST_LINES:])
    lines += [f"  end of {job.log}", *_indented(_end_of_log(job, status))]
    lines += ["  to run this job again", f"    {rerun_command(job)}"]
    return "\n".join(lines)


def rerun_command(job: Job) -> str:
    """The command that runs one job again."""
    for batch in (job.folder.parent.parent, job.folder.parent):  # of a job in jobs/, and of the report
        if (batch / "batch.json").is_file() and (batch == job.folder.parent or job.folder.parent.name == "jobs"):
            return f"marlnb batch {shlex.quote(str(batch))} --only {shlex.quote(job.name)}"
    words = ["python", "-m", "marlnb.batch.job.execute", str(job.notebook), "--out", str(job.folder)]
    for name, value in job.parameters.items():
        words += ["-p", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def result_line(status: JobStatus) -> str:
    """The line in the job's log that says how an attempt ended."""
    return f"attempt {status.attempt}: {status.state}" + (f" ({status.reason})" if status.reason else "")


def read_tail(log: Path, count: int = N_LAST_LINES) -> list[str]:
    """The last lines of a log, fewer if they have more than `MAX_TAIL_BYTES`; empty if it does not exist."""
    blocks: deque[bytes] = deque()
    n_ends = 0
    try:
        with open_ordinary(log, follow=False) as file:
            start = size = file.seek(0, 2)
            while start and n_ends <= count and size - start < MAX_TAIL_BYTES:
                stop, start = start, file.seek(max(0, start - BLOCK_BYTES))
                blocks.appendleft(file.read(stop - start))
                n_ends += blocks[0].count(b"\n")
    except OSError:
        return []
    lines = b"".join(blocks).decode(errors="replace").splitlines()
    return (lines[1:] or lines if start else lines)[-count:]  # the first may be the end of a line


def _end_of_log(job: Job, status: JobStatus) -> list[str]:
    """The end of the log up to the line that says how the attempt ended: what follows is this description."""
    lines, result = read_tail(job.log, MAX_LOG_LINES), result_line(status).splitlines()[0]
    ends = [number for number, line in enumerate(lines) if line.endswith(result)]
    return lines[: ends[-1] if ends else None][-N_LAST_LINES:]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line[:MAX_LINE_LENGTH]}" for line in lines]
