"""The kernel: started for real, over ipc as a job starts it, and asked what it has."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from marlnb.batch.doctor.check import Answer, Level, Subject, check
from marlnb.batch.doctor.imports import imported, named_environments

TIMEOUT_S = 120
PACKAGES = ("marlnb", "torch", "torchrl", "tensordict", "numpy", "h5py", "hydra-core", "papermill", "ipykernel")
INSIDE = Path(__file__).with_name("inside.py")


@dataclass(frozen=True)
class Seen:
    """What the profile's Python and the kernel that it started saw.

    Attributes:
        kernel: the name that the notebook asks for; empty where it names none.
        problem: why there is nothing more; "missing": no such kernel; empty when it started.
        kernels: those there are.
        missing: modules that cannot be found. broken: why environments cannot be built, by name.
        versions: of the packages that results depend on; empty where one is not installed.
    """

    kernel: str
    problem: str = ""
    kernels: tuple[str, ...] = ()
    seconds: float = 0.0
    executable: str = ""
    prefix: str = ""
    python: str = ""
    marlnb: str = ""
    import_error: str = ""
    missing: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)


def python_of(subject: Subject) -> str:
    """The Python of the profile's jobs, empty where there is none at that path."""
    asked = subject.profile.python
    return sys.executable if asked is None else shutil.which(os.path.expanduser(asked)) or ""


def start_kernel(subject: Subject) -> Seen:
    """Starts the notebook's kernel with the profile's Python; what went wrong is in `problem`."""
    kernel, python = _kernel_name(subject.notebook), python_of(subject)
    if not kernel:
        return Seen("", problem="the notebook names no kernel")
    if not python:
        return Seen(kernel, problem=f"the profile's Python {subject.profile.python!r} is not there")
    names = {"modules": sorted(imported(subject)), "envs": sorted(named_environments(subject))}
    request = {"start": True, "kernel": kernel, "timeout_s": TIMEOUT_S, "packages": PACKAGES, **names}
    answer = ask_python(python, request, subject)
    answer = {key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()}
    return Seen(kernel, **answer)


def ask_python(python: str, request: dict[str, Any], subject: Subject) -> dict[str, Any]:
    """Runs `inside.py` with a Python; its answer, or a `problem`."""
    source = INSIDE.read_text(encoding="utf-8")
    command = [python, "-c", source, json.dumps({**request, "source": source})]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    cwd = subject.cwd if subject.cwd.is_dir() else None
    try:
        child = subprocess.Popen(
            command, cwd=cwd, env=subject.environment, text=True, start_new_session=True, errors="replace", **pipes
        )
    except OSError as error:
        return {"problem": f"{python} cannot be run: {error.strerror or error}"}
    try:
        out, said = child.communicate(timeout=2 * TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"problem": f"it said nothing for {2 * TIMEOUT_S} s"}
    marked = [line.partition(":")[2] for line in out.splitlines() if line.startswith("marlnb-doctor:")]
    if marked:
        return dict(json.loads(marked[-1]))
    lines = [line for line in said.splitlines() if line.strip()]
    return {"problem": lines[-1] if lines else f"it ended with {child.returncode} and said nothing"}


@check("kernel")
def _starts(subject: Subject) -> Iterator[Answer]:
    seen = subject.seen
    if seen.problem == "missing":
        there = ", ".join(seen.kernels) or "none"
        remedy = f"choose one of those in JupyterLab (they are: {there}) and save the notebook, or `marlnb hub install`"
        yield "fail", f"the notebook asks for the kernel {seen.kernel!r}, which is not there", remedy
    elif seen.problem:
        name = f"the kernel {seen.kernel!r} did not start: " if seen.kernel else ""
        yield "fail", f"{name}{seen.problem}", _kernel_remedy(seen, subject)
    else:
        yield "ok", f"the kernel {seen.kernel!r} started, looked around and ended in {seen.seconds:.1f} s", ""
        yield from _same_python(seen, python_of(subject))


def _kernel_remedy(seen: Seen, subject: Subject) -> str:
    if not seen.kernel:
        return "open the notebook in JupyterLab, choose a kernel, and save it"
    python = python_of(subject)
    if not python:
        return "give the profile's `python` the path of an environment's bin/python, or leave it out"
    if "jupyter_client" in seen.problem:
        return f"install marlnb in that environment: {python} -m pip install marlnb"
    return f"try it by hand: {python} -m jupyter run, or `{python} -m ipykernel --version`"


def _same_python(seen: Seen, python: str) -> Iterator[Answer]:
    """The kernel's Python against the job's own, and against what the kernel's name promises."""
    if os.path.dirname(seen.executable) != os.path.dirname(os.path.abspath(python)):
        text = f"the kernel {seen.kernel!r} runs {seen.executable}, the job {python}: another environment"
        yield "warn", text, "choose the kernel of that environment, or set the profile's `python` to the kernel's"
    promised = re.search(r"\b3\.\d+", str(seen.spec.get("display_name", "")))
    if promised and not seen.python.startswith(promised[0]):
        text = f"the kernel is called {seen.spec['display_name']!r} and is Python {seen.python}"
        yield "warn", text, "the environment was made anew with another Python: install the kernel again"


@check("environment")
def _environment(subject: Subject) -> Iterator[Answer]:
    seen = subject.seen
    if not seen.executable:
        yield "warn", "what is installed is not known, since the kernel did not start", "see the check `kernel`"
        return
    if seen.import_error:
        where = f" (it lies at {seen.marlnb})" if seen.marlnb else ""
        remedy = f"{seen.executable} -m pip install marlnb"
        yield "fail", f"`import marlnb` fails in {seen.executable}: {seen.import_error}{where}", remedy
        return
    told = ", ".join(f"{name} {version}" for name, version in seen.versions.items() if version)
    yield "ok", f"Python {seen.python} in {seen.prefix}; {told}", ""
    yield from _differing(seen)
    if "site-packages" not in seen.marlnb:
        text = f"marlnb is installed from the source tree {os.path.dirname(seen.marlnb)}: a change there reaches jobs"
        level: Level = "ok" if subject.profile.executor == "local" else "warn"
        remedy = "leave the tree alone while a batch runs, or install a wheel: `make wheel`, pip install dist/..."
        yield level, f"{text} that wait", remedy


def _differing(seen: Seen) -> Iterator[Answer]:
    here = _versions_here()
    differing = [
        f"{name} {seen.versions[name] or 'not installed'} there, {here[name] or 'not installed'} here"
        for name in PACKAGES
        if seen.versions.get(name, "") != here[name]
    ]
    python = ".".join(map(str, sys.version_info[:3]))
    if seen.python.rsplit(".", 1)[0] != python.rsplit(".", 1)[0]:
        differing.insert(0, f"Python {seen.python} there, {python} here")
    if differing:
        remedy = "submit from the environment in which the jobs run"
        yield "warn", f"versions differ from those of this command: {'; '.join(differing)}", remedy


@cache
def _versions_here() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def _kernel_name(notebook: Path | None) -> str:
    if notebook is None:
        return "python3"
    try:
        return str(nbformat.read(notebook, as_version=4).metadata.get("kernelspec", {}).get("name", ""))
    except Exception:  # the check `notebook` says why it cannot be read
        return "python3"
