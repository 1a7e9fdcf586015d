"""Checks of the kernel, which is started over ipc as in a job, and of the packages in its environment."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.check import Answer, Level, check
from marlnb.batch.doctor.kernel_probe import versions_of
from marlnb.batch.doctor.kernel_report import PACKAGES, KernelReport
from marlnb.batch.doctor.request import DoctorRequest


@check("kernel")
def _starts(request: DoctorRequest) -> Iterator[Answer]:
    report = request.kernel_report
    if report.problem == "missing":
        kernels = ", ".join(report.kernels) or "none"
        remedy = f"choose one of these in JupyterLab and save the notebook: {kernels}; or run `marlnb hub install`"
        yield "fail", f"the notebook needs the kernel {report.kernel!r}, which is not installed", remedy
    elif report.problem:
        name = f"the kernel {report.kernel!r} did not start: " if report.kernel else ""
        yield "fail", f"{name}{report.problem}", _remedy(report, request.python)
    else:
        yield "ok", f"the kernel {report.kernel!r} started, answered and ended in {report.seconds:.1f} s", ""
        yield from _same_python(report, request.python)


def _remedy(report: KernelReport, python: str) -> str:
    if not python:
        return "set the profile's `python` to the path of an environment's bin/python, or remove it"
    if not report.kernel:
        return "open the notebook in JupyterLab, choose a kernel, and save it"
    if "jupyter_client" in report.problem:
        return f"install marlnb in that environment: {python} -m pip install marlnb"
    return f"try it by hand: {python} -m jupyter run, or `{python} -m ipykernel --version`"


def _same_python(report: KernelReport, python: str) -> Iterator[Answer]:
    """Compares the kernel's Python with the job's, and with the version in the kernel's display name."""
    if os.path.dirname(report.executable) != os.path.dirname(os.path.abspath(python)):
        text = f"the kernel {report.kernel!r} runs {report.executable}, but the job runs {python}, another environment"
        yield "warn", text, "choose the kernel of that environment, or set the profile's `python` to the kernel's"
    version = re.search(r"\b3\.\d+", str(report.spec.get("display_name", "")))
    if version and not report.python.startswith(version[0]):
        text = f"the kernel is called {report.spec['display_name']!r} but runs Python {report.python}"
        yield "warn", text, "the environment has a new Python; install the kernel again"


@check("environment")
def _environment(request: DoctorRequest) -> Iterator[Answer]:
    report = request.kernel_report
    if not report.executable:
        yield "warn", "installed packages are unknown, since the kernel did not start", "see the check `kernel`"
        return
    if report.import_error:
        folder = f" (in {report.marlnb})" if report.marlnb else ""
        remedy = f"{report.executable} -m pip install marlnb"
        yield "fail", f"`import marlnb` fails in {report.executable}: {report.import_error}{folder}", remedy
        return
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items() if version)
    yield "ok", f"Python {report.python} in {report.prefix}; {versions}", ""
    yield from _differing_versions(report)
    if not {"site-packages", "dist-packages"} & set(Path(report.marlnb).parts):  # Debian's Python has the latter
        folder = os.path.dirname(report.marlnb)
        text = f"marlnb is installed from the source tree {folder}: a change there affects jobs that wait"
        level: Level = "ok" if request.profile.executor == "local" else "warn"
        remedy = "do not change the tree while a batch runs, or install a wheel: `make wheel`, pip install dist/..."
        yield level, text, remedy


def _differing_versions(report: KernelReport) -> Iterator[Answer]:
    here = versions_of(PACKAGES)
    differences = [
        f"{name} {report.versions[name] or 'not installed'} there, {here[name] or 'not installed'} here"
        for name in PACKAGES
        if report.versions.get(name, "") != here[name]
    ]
    python = ".".join(map(str, sys.version_info[:3]))
    if report.python.rsplit(".", 1)[0] != python.rsplit(".", 1)[0]:
        differences.insert(0, f"Python {report.python} there, {python} here")
    if differences:
        remedy = "submit from the environment in which the jobs run"
        yield "warn", f"versions differ from those of this command: {'; '.join(differences)}", remedy
