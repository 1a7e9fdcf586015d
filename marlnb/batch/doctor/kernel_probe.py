"""What is run by the profile's Python, and then in the kernel that it starts. Standard library and Jupyter only.

`python -m` cannot be used: this Python may have no marlnb, or another one. So the text of this file is run as it is,
with the request as one JSON argument, and answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

MARK = "marlnb-doctor:"


def look(request: dict) -> dict:  # type: ignore[type-arg]
    """What this Python has: versions, where marlnb lies, which modules cannot be found, which parts cannot be built."""
    import importlib.util
    from importlib import metadata

    versions = {}
    for name in request["packages"]:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ""
    missing = [name for name in request["modules"] if not _can_be_found(name)]
    spec = importlib.util.find_spec("marlnb")
    seen = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": versions,
        "missing": missing,
        "marlnb": os.path.dirname(spec.origin) if spec and spec.origin else "",
        "import_error": "",
        "broken": {},
    }
    try:
        import marlnb  # noqa: F401
    except BaseException as error:
        seen["import_error"] = f"{type(error).__name__}: {error}"
        return seen
    seen["broken"] = {name: problem for name in request["envs"] if (problem := _build_problem(name))}
    return seen


def _can_be_found(name: str) -> bool:
    """Whether `import a.b.c` would find its file; nothing is imported, since that may take minutes or a GPU."""
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
    """Why one copy of an environment cannot be made; empty when it can."""
    from marlnb import Experiment

    try:
        Experiment.compose(f"env={name}").env.build(1).close()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def start(request: dict) -> dict:  # type: ignore[type-arg]
    """Starts the kernel as a job does, over ipc, and lets it look; what it saw, with the seconds that it took."""
    import tempfile

    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_client.manager import KernelManager
    from traitlets.config import Config

    began = time.monotonic()
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
            said: list = []  # type: ignore[type-arg]
            code = f"import sys; sys.argv = ['', {json.dumps(json.dumps({**request, 'start': False}))}]\n" + SOURCE
            reply = client.execute_interactive(
                code, timeout=request["timeout_s"], allow_stdin=False, output_hook=said.append
            )["content"]
            spec = manager.kernel_spec
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    text = "".join(message["content"].get("text", "") for message in said)
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    found = {"kernels": kernels, "seconds": time.monotonic() - began, "spec": spec.to_dict() if spec else {}}
    if not lines:
        return {"problem": f"{reply.get('ename', '')}: {reply.get('evalue', '')}", **found}
    return {**json.loads(lines[-1][len(MARK) :]), **found}


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
