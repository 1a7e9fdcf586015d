"""A program for the profile's Python, and for the kernel that it starts; uses only the standard library and Jupyter.

That Python may have no marlnb, or another version, so `python -m` does not work. Instead the text of this file is run
as it is, with the question as one JSON argument; it prints its answer as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable

MARK = "marlnb-doctor:"


def look(request: dict) -> dict:  # type: ignore[type-arg]
    """Describes this Python: versions, marlnb's folder, modules that are missing, environments that cannot be built."""
    import importlib.util

    spec = importlib.util.find_spec("marlnb")
    report = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": versions_of(request["packages"]),
        "missing": [name for name in request["modules"] if not _is_importable(name)],
        "marlnb": os.path.dirname(spec.origin) if spec and spec.origin else "",
        "import_error": "",
        "broken": {},
    }
    try:
        import marlnb  # noqa: F401
    except BaseException as error:
        report["import_error"] = f"{type(error).__name__}: {error}"
        return report
    report["broken"] = {name: problem for name in request["envs"] if (problem := _build_problem(name))}
    return report


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of packages by name; empty for one that is not installed."""
    from importlib import metadata

    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ""
    return versions


def _is_importable(name: str) -> bool:
    """Whether `import a.b.c` would find its file; nothing is imported, which could take minutes or need a GPU."""
    import importlib.util
    from importlib.machinery import PathFinder

    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return top in sys.modules
    if spec is None:
        return False
    for depth, _ in enumerate(rest, 1):
        if spec is None or spec.submodule_search_locations is None:
            return spec is not None
        spec = PathFinder.find_spec(".".join([top, *rest[:depth]]), spec.submodule_search_locations)
    return spec is not None


def _build_problem(name: str) -> str:
    """Why an environment cannot be built; empty if it can."""
    from marlnb import Experiment

    try:
        Experiment.compose(f"env={name}").env.build(1).close()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def start(request: dict) -> dict:  # type: ignore[type-arg]
    """Starts the kernel over ipc, as a job does, and runs `look` in it; returns its answer and its time."""
    import tempfile

    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_client.manager import KernelManager
    from traitlets.config import Config

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marlnb-") as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        kernels = sorted(KernelSpecManager().find_kernel_specs())
        manager = KernelManager(kernel_name=request["kernel"], config=Config({"KernelManager": {"transport": "ipc"}}))
        try:
            manager.start_kernel()
        except NoSuchKernel:
            return {"problem": "missing", "kernels": kernels}
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=request["timeout_s"])
            messages: list = []  # type: ignore[type-arg]
            code = f"import sys; sys.argv = ['', {json.dumps(json.dumps({**request, 'start': False}))}]\n" + SOURCE
            reply = client.execute_interactive(
                code, timeout=request["timeout_s"], allow_stdin=False, output_hook=messages.append
            )["content"]
            spec = manager.kernel_spec
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    text = "".join(message["content"].get("text", "") for message in messages)
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    common = {"kernels": kernels, "seconds": time.monotonic() - started, "spec": spec.to_dict() if spec else {}}
    if not lines:
        return {"problem": f"{reply.get('ename', '')}: {reply.get('evalue', '')}", **common}
    return {**json.loads(lines[-1][len(MARK) :]), **common}


def _main() -> None:
    request = json.loads(sys.argv[1])
    try:
        answer = (start if request["start"] else look)(request)
    except Exception as error:
        answer = {"problem": f"{type(error).__name__}: {error}"}
    print("\n" + MARK + json.dumps(answer), flush=True)


SOURCE = json.loads(sys.argv[1]).get("source", "") if len(sys.argv) > 1 and sys.argv[1].startswith("{") else ""
if SOURCE:
    _main()
