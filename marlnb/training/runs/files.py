"""The files of a run's folder: their names, and how they are read and written.

Nothing heavy is imported, so that a process that only looks at runs, such as a batch job's, starts fast.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from marlnb.disk import process_alive
from marlnb.disk import write_atomically as write_atomically
from marlnb.errors import RunError
from marlnb.paths import expanded
from marlnb.text_files import read_text

EXPERIMENT = "experiment.json"
SPEC = "spec.json"
CODE = "code.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
EVENTS = "events.log"
STATUS = "status.json"
LOCK = "lock"
STOP, PAUSE, SAVE = "STOP", "PAUSE", "SAVE"  # requests to a training run; see marlnb.training.control
CACHE = "cache"  # results of `marlnb.cached`, shared by all attempts to execute a notebook
JOB_LOCK = "job.lock"  # held while a batch job executes its notebook in the folder
TRAINING = "training.json"  # in a batch job's folder: the run that its kernel trains
LEAGUE, POPULATION = "league", "population"  # folders of their players and members
EVALUATION = "evaluation"  # where external simulators find evaluations and recordings
RECIPE = "recipe.yaml"  # of an entry of a gallery; see marlnb.galleries.recipe
MAY_PRECEDE = (
    *("notebook.ipynb", "notebook.html", RECIPE, STOP, CACHE),
    *("job.json", "job_status.json", JOB_LOCK, "attempts.jsonl", "output.log", TRAINING),  # see marlnb.batch.job.job
)
JOB_VARIABLE = "MARLNB_JOB"  # set while a batch job executes a notebook: the job's folder
MAX_REASON_BYTES = 64 * 1024
_NUMBER = re.compile("0|[1-9][0-9]*")
_TEMPORARY = re.compile(r"\.(.+)\.(\d+|part)")
_CHECKSUM = re.compile(r', "crc": "([0-9a-f]{8})"}\s*$')


def may_precede(name: str) -> bool:
    """Whether a file of this name, or the temporary file of a killed writer, may exist before a run starts."""
    return final_name(name) in MAY_PRECEDE


def remove_temporaries(folder: Path, names: Collection[str]) -> None:
    """Deletes the temporary files that killed writers of these files left."""
    for entry in list(folder.iterdir()) if folder.is_dir() else []:
        temporary = _TEMPORARY.fullmatch(entry.name)
        pid = temporary.group(2) if temporary and temporary.group(1) in names else "part"
        if pid != "part" and not process_alive(int(pid)):
            entry.unlink(missing_ok=True)


def final_name(name: str) -> str:
    """The name of the file that a temporary file becomes; that of other files is their own."""
    temporary = _TEMPORARY.fullmatch(name)
    return temporary.group(1) if temporary else name


def numbered(folder: Path) -> list[int]:
    """The numbers that are names in a folder, in order; 007 is none, nor is one in other digits than 0 to 9."""
    return sorted(int(name) for name in os.listdir(folder) if _NUMBER.fullmatch(name)) if folder.is_dir() else []


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run; one that may not be read holds none."""
    return os.path.isfile(expanded(path) / EXPERIMENT)


def folder_problem(path: Path) -> str:
    """Why a folder cannot be searched, as the end of a sentence: "does not exist"; empty if it can."""
    try:
        mode = path.stat().st_mode
    except PermissionError:
        return "may not be read"
    except OSError:
        return "does not exist"
    if not stat.S_ISDIR(mode):
        return "is not a folder"
    return "" if os.access(path, os.X_OK) else "may not be read"


def stop_reason(run: Path) -> str | None:
    """The reason written into a run folder's file STOP; empty if it gives none; None if no such file is found."""
    try:
        return read_text(run / STOP, max_bytes=MAX_REASON_BYTES, errors="replace", follow=False).strip()
    except OSError:
        return "" if os.path.exists(run / STOP) else None


def read_json(path: Path) -> dict[str, Any]:
    """Raises RunError if the file cannot be read as a JSON object."""
    try:
        data = json.loads(read_text(path, follow=False))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} cannot be read: it holds a {type(data).__name__}, not an object")
    return data


def is_damage(error: RunError) -> bool:
    """Whether a file is missing or its content is not valid, as after a lost node; else it could not be read."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOENT, errno.EFBIG)  # EFBIG: it has more bytes than were written
    return not isinstance(cause, MemoryError)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a JSON-lines file. A last line without its end, which a kill cut off, is skipped.

    Raises:
        RunError: another line is damaged, or the file cannot be read.
    """
    try:
        text = read_text(path, errors="replace", follow=False) if path.exists() else ""
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    lines, is_cut = text.splitlines(), not text.endswith("\n")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(parse_line(line, f"{path}, line {number},"))
        except RunError:
            if number < len(lines) or not is_cut:
                raise
    return rows


def line_of(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON whose last entry, `crc`, is the CRC-32 of the others, so that changes are noticed."""
    text = json.dumps(row, allow_nan=False)
    return f'{text[:-1]}, "crc": "{zlib.crc32(text.encode()):08x}"}}'


def parse_line(line: str, where: str) -> dict[str, Any]:
    """One line of a JSON-lines file, without its checksum.

    Raises:
        RunError: it is not a JSON object, or does not match its checksum; the message starts with `where`.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is damaged: {error}") from error
    if not isinstance(row, dict):
        raise RunError(f"{where} is damaged: expected an object; got {line[:80]}")
    if checksum := _CHECKSUM.search(line):  # rows of earlier versions have none
        del row["crc"]
        if zlib.crc32(f"{line[: checksum.start()]}}}".encode()) != int(checksum[1], 16):
            raise RunError(f"{where} is damaged: its values were changed after they were written")
    return row
