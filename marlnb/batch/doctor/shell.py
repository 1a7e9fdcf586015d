"""Checks that the submitting shell and the environment of the jobs agree."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.files import nearest_folder
from marlnb.batch.doctor.request import DoctorRequest

MAX_SOCKET_PATH_LENGTH = 107  # characters of a Unix socket's path, on Linux
_SOCKET = "marlnb-xxxxxxxx/kernel-00000000-0000-0000-0000-000000000000-ipc-1"


@check("shell")
def _shell(request: DoctorRequest) -> Iterator[Answer]:
    python = request.python
    if not python:
        return
    prefix = Path(os.path.abspath(python)).parent.parent
    for variable, activation in (("VIRTUAL_ENV", "activate"), ("CONDA_PREFIX", "conda activate")):
        active = os.environ.get(variable)
        if active and Path(active).resolve() != prefix.resolve():
            remedy = f"shell commands in cells (`!python`) may use {active}: {activation} the jobs' environment"
            yield "warn", f"{variable} is {active}, set by `{activation}`, but jobs run {python}", remedy
    if "UV_PROJECT_ENVIRONMENT" in os.environ or any("uv run" in line for line in request.profile.setup):
        text = "`uv run --no-sync` silently creates an empty environment if there is none"
        yield "warn", text, f"let jobs run {python} directly; it needs no activation"
    if (prefix / "conda-meta").is_dir() and os.environ.get("CONDA_PREFIX") is None and not request.profile.setup:
        text = f"{python} belongs to a conda environment that is not activated, so its variables are not set in jobs"
        yield "warn", text, f"add to the profile: setup: ['source {sys.base_prefix}/bin/activate {prefix}']"
    for name in ("PYTHONPATH", "PYTHONHOME"):
        if request.environment.get(name):
            text = f"{name} is {request.environment[name]}: its modules take precedence over the environment's"
            yield "warn", text, f"unset {name}; jobs may inherit it"
    yield from _sockets(request)


def _sockets(request: DoctorRequest) -> Iterator[Answer]:
    """Kernels communicate through sockets in the temporary folder, whose paths must be short."""
    folder = request.environment.get("TMPDIR", "/tmp")
    if len(os.fsencode(f"{folder}/{_SOCKET}")) > MAX_SOCKET_PATH_LENGTH:
        text = f"TMPDIR={folder} is too long for the kernel's sockets (at most {MAX_SOCKET_PATH_LENGTH} characters)"
        yield "fail", text, "set it in the profile: environment: {TMPDIR: /tmp}"
    elif not Path(folder).is_dir() or not os.access(nearest_folder(Path(folder)), os.W_OK):
        text = f"TMPDIR={folder} does not exist or cannot be written"
        yield "fail", text, "set it in the profile: environment: {TMPDIR: /tmp}"
