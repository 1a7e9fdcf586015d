"""The files of a run's folder: their names, and how they are read and written.

Nothing heavy is imported, so that a process that only looks at runs, such as a batch job's, starts fast.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from marlnb.errors import RunError

EXPERIMENT = "experiment.json"
SPEC = "spec.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
EVENTS = "events.log"
STATUS = "status.json"
LOCK = "lock"
STOP, PAUSE, SAVE = "STOP", "PAUSE", "SAVE"  # requests to a training; see marlnb.training.control
CACHE = "cache"  # results of `marlnb.cached`, shared by all attempts to execute a notebook
TRAINING = "training.json"  # in a batch job's folder: the run that its kernel trains
EVALUATION = "evaluation"  # where external simulators find evaluations and recordings
MAY_PRECEDE = (
    *("notebook.ipynb", "notebook.html", STOP, CACHE),
    *("job.json", "job_status.json", "job.lock", "attempts.jsonl", "output.log", TRAINING),  # see marlnb.batch.job.job
)
JOB_VARIABLE = "MARLNB_JOB"  # set while a batch job executes a notebook: the job's folder
_TEMPORARY = re.compile(r"\.(.+)\.(?:\d+|part)")


def may_precede(name: str) -> bool:
    """Whether a file of this name, or the temporary file of a killed writer, may exist before a run starts."""
    temporary = _TEMPORARY.fullmatch(name)
    return (temporary.group(1) if temporary else name) in MAY_PRECEDE


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run."""
    return (Path(path).expanduser() / EXPERIMENT).is_file()


def read_json(path: Path) -> dict[str, Any]:
    """Raises RunError if the file cannot be read as a JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} cannot be read: it holds a {type(data).__name__}, not an object")
    return data


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a JSON-lines file. An incomplete last line is skipped.

    Raises:
        RunError: another line is damaged.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(parse_line(line, f"{path}, line {number},"))
        except RunError:
            if number < len(lines):
                raise
    return rows


def parse_line(line: str, where: str) -> dict[str, Any]:
    """One line of a JSON-lines file. Raises RunError, which starts with `where`, if it is not a JSON object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is damaged: {error}") from error
    if not isinstance(row, dict):
        raise RunError(f"{where} is damaged: expected an object; got {line[:80]}")
    return row


def write_atomically(path: Path, text: str, *, sync: bool = True) -> None:
    """Readers see the old or the new content, never a part. With `sync` this holds after a power cut too."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
