"""KernelReport: what a kernel reports about its Python, after it was started in the way a job starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

TIMEOUT_S = 120
PACKAGES = ("marlnb", "torch", "torchrl", "tensordict", "numpy", "h5py", "hydra-core", "papermill", "ipykernel")
PROBE = Path(__file__).with_name("kernel_probe.py")


@dataclass(frozen=True)
class KernelReport:
    """What the profile's Python, and the kernel that it started, reported.

    Attributes:
        kernel: name of the kernel in the notebook; empty without one.
        problem: why there is no more; "missing": no such kernel; empty if it started.
        kernels: names of the installed kernels.
        seconds: time that the kernel took.
        executable: path of the kernel's Python.
        prefix: folder of its environment.
        python: version of Python.
        marlnb: folder of its marlnb.
        import_error: why `import marlnb` fails; empty if it works.
        missing: modules that cannot be found.
        versions: versions of the packages that results depend on; empty if one is not installed.
        broken: by environment, why it cannot be built.
        spec: the kernelspec.
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


def start_kernel(
    notebook: Path | None,
    python: str,
    modules: Sequence[str],
    environments: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
) -> KernelReport:
    """Starts the notebook's kernel with a Python; `problem` of the report says what went wrong.

    Args:
        notebook: path of the notebook; None: the kernel "python3".
        python: path of the Python.
        modules: modules that the kernel should look for.
        environments: environments that it should build.
        cwd: working folder.
        variables: environment variables.
    """
    kernel = "python3"
    if notebook is not None:
        with suppress(Exception):  # the check `notebook` reports why it cannot be read
            kernel = str(nbformat.read(notebook, as_version=4).metadata.get("kernelspec", {}).get("name", ""))
    if not kernel:
        return KernelReport("", problem="the notebook names no kernel")
    question = {"start": True, "kernel": kernel, "timeout_s": TIMEOUT_S, "packages": PACKAGES}
    answer = ask_python(python, {**question, "modules": modules, "envs": environments}, cwd, variables)
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()}
    return KernelReport(kernel, **fields)


def ask_python(python: str, question: dict[str, Any], cwd: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Runs `kernel_probe.py` with a Python; returns its answer, or a `problem`."""
    source = PROBE.read_text(encoding="utf-8")
    command = [python, "-c", source, json.dumps({**question, "source": source})]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    options = {"cwd": cwd if cwd.is_dir() else None, "env": dict(variables), "start_new_session": True, **pipes}
    try:
        process = subprocess.Popen(command, text=True, errors="replace", **options)
    except OSError as error:
        return {"problem": f"{python} cannot be run: {error.strerror or error}"}
    try:
        output, errors = process.communicate(timeout=2 * TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"problem": f"it did not answer within {2 * TIMEOUT_S} s"}
    answers = [line.partition(":")[2] for line in output.splitlines() if line.startswith("marlnb-doctor:")]
    if answers:
        return dict(json.loads(answers[-1]))
    lines = [line for line in errors.splitlines() if line.strip()]
    return {"problem": lines[-1] if lines else f"it ended with exit code {process.returncode} and without output"}
