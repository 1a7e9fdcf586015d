"""JSON-lines files that only grow: the record of leagues and populations. A resumed training run cuts them back.

Each line has a checksum, so that a changed value is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from marlnb.disk import append_lines, writing
from marlnb.errors import RunError
from marlnb.text_files import read_text
from marlnb.training.runs.files import line_of, write_atomically


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds lines to a JSON-lines file, all of them at once.

    Raises:
        DiskError: the disk refuses; the file is unchanged.
    """
    append_lines(path, [line_of(row) for row in rows])


def sync_rows(path: Path) -> None:
    """Makes the lines of a file durable, if there is one. Raises DiskError: the disk refuses."""
    if path.exists():
        with writing(path), open(path, "rb") as file:
            os.fsync(file.fileno())


def cut_lines(path: Path, n_lines: int) -> None:
    """Keeps the first lines of a JSON-lines file, as a resumed training run does.

    Raises:
        RunError: it has fewer.
    """
    try:
        lines = read_text(path, errors="replace", follow=False).splitlines() if path.exists() else []
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(lines) < n_lines:
        raise RunError(f"{path} has {len(lines)} lines, but the checkpoint was saved after {n_lines}")
    if len(lines) > n_lines:
        write_atomically(path, "".join(f"{line}\n" for line in lines[:n_lines]))
