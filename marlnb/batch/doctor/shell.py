"""The shell from which it is submitted, against the environment in which jobs run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.check import Answer, Subject, check
from marlnb.batch.doctor.files import nearest_folder
from marlnb.batch.doctor.kernel import python_of

LONGEST_SOCKET = 107  # characters of a Unix socket's path, on Linux
_SOCKET = "marlnb-xxxxxxxx/kernel-00000000-0000-0000-0000-000000000000-ipc-1"


@check("shell")
def _shell(subject: Subject) -> Iterator[Answer]:
    python = python_of(subject)
    if not python:
        return
    prefix = Path(os.path.abspath(python)).parent.parent
    for variable, made_by in (("VIRTUAL_ENV", "activate"), ("CONDA_PREFIX", "conda activate")):
        active = os.environ.get(variable)
        if active and Path(active).resolve() != prefix.resolve():
            text = f"{variable} is {active}, by `{made_by}`, and jobs run {python}"
            yield "warn", text, f"jobs use the latter; commands in cells (`!python`) may use the former: {made_by} it"
    if "UV_PROJECT_ENVIRONMENT" in os.environ or any("uv run" in line for line in subject.profile.setup):
        yield (
            "warn",
            "`uv run --no-sync` makes an empty environment where none is, without a word",
            (f"let jobs run {python} itself: it needs no activation"),
        )
    if (prefix / "conda-meta").is_dir() and os.environ.get("CONDA_PREFIX") is None and not subject.profile.setup:
        text = f"{python} is of a conda environment that is not activated: its variables are not set in jobs"
        yield "warn", text, f"add to the profile: setup: ['source {sys.base_prefix}/bin/activate {prefix}']"
    for name in ("PYTHONPATH", "PYTHONHOME"):
        if subject.environment.get(name):
            text = f"{name} is {subject.environment[name]}: modules from there come before the environment's"
            yield "warn", text, f"unset {name}, or know that jobs may get it too"
    yield from _sockets(subject)


def _sockets(subject: Subject) -> Iterator[Answer]:
    """Kernels are reached through sockets in the folder for temporary files, whose paths must be short."""
    folder = subject.environment.get("TMPDIR", "/tmp")
    if len(os.fsencode(f"{folder}/{_SOCKET}")) > LONGEST_SOCKET:
        text = f"TMPDIR={folder} is too long for the kernel's sockets (at most {LONGEST_SOCKET} characters in all)"
        yield "fail", text, "set it in the profile: environment: {TMPDIR: /tmp}"
    elif not Path(folder).is_dir() or not os.access(nearest_folder(Path(folder)), os.W_OK):
        text = f"TMPDIR={folder} is not there or cannot be written to"
        yield "fail", text, "set it in the profile: environment: {TMPDIR: /tmp}"
