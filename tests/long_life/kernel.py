"""A Jupyter kernel as a notebook uses it: cells that run, are interrupted, and what its process holds meanwhile."""

from __future__ import annotations

import json
import os
import queue
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

GUARD_S = 600.0
SILENCE_S = 20.0  # then the kernel is asked whether it still executes
LOST = "lost"
REPOSITORY = Path(__file__).parents[2]
MEASURE = """
import gc as _gc, json as _json, psutil as _psutil, sys as _sys, time as _time
from ipywidgets.widgets.widget import _instances as _widgets
_gc.collect()
_sys.stdout.pub_thread._event_pipe_gc_seconds = 0.1  # ipykernel closes the pipes of ended threads every 10 s
_give_up = _time.monotonic() + 20
while any(not _thread.is_alive() for _thread in list(_sys.stdout.pub_thread._event_pipes)):
    assert _time.monotonic() < _give_up, "ipykernel keeps the pipes of ended threads"
    _time.sleep(0.05)
_self = _psutil.Process()
_maps = [part.path for part in _self.memory_maps(grouped=False)]
print(_json.dumps({
    "memory_mb": _self.memory_full_info().uss / 1e6,
    "threads": _self.num_threads(),
    "processes": len(_self.children(recursive=True)),
    "files": _self.num_fds(),
    "shared": sum("memfd:marlnb" in path or "/dev/shm" in path for path in _maps),
    "widgets": len(_widgets),
}))
"""


@dataclass(frozen=True)
class Holdings:
    """What a kernel's process holds.

    Attributes:
        memory_mb: memory that is its own, in MB.
        threads: of the system.
        processes: that it started, with theirs.
        files: open descriptors.
        shared: mapped pieces of shared memory.
        widgets: that were not closed.
    """

    memory_mb: float
    threads: int
    processes: int
    files: int
    shared: int
    widgets: int

    def counts(self) -> dict[str, int]:
        """Everything but the memory."""
        return {name: value for name, value in asdict(self).items() if name != "memory_mb"}


@dataclass(frozen=True)
class Ending:
    """How a cell ended: "" or the name of its error, and what it printed, or the error's text.

    LOST: the interrupt came between two cells, in ipykernel's own loop, which then forgets the message that it handled.
    """

    error: str
    text: str


class Kernel:
    """A running kernel; use `running_kernel`."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def start(self, code: str) -> str:
        """Starts a cell, and returns its message's number."""
        return str(self.client.execute(code, store_history=True))

    def interrupt(self) -> None:
        """What the button with the square does."""
        self.manager.interrupt_kernel()

    def end(self, number: str) -> Ending:
        """Waits until a cell has ended."""
        parts: list[str] = []
        error, probe, deadline = "", "", time.monotonic() + GUARD_S
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=SILENCE_S)
            except queue.Empty:
                probe = probe or self.start("pass")  # a kernel answers it after the cell
                continue
            parent = message["parent_header"].get("msg_id")
            if probe and parent == probe and message["content"].get("execution_state") == "idle":
                self.client.get_shell_msg(timeout=GUARD_S)
                return Ending(LOST, "".join(parts))
            if parent != number:
                continue
            content, kind = message["content"], message["msg_type"]
            if kind == "stream" and content["name"] == "stdout":
                parts.append(content["text"])
            elif kind == "error":
                error, parts = content["ename"], ["\n".join(content["traceback"])]
            elif kind == "status" and content["execution_state"] == "idle":
                self._take_replies(2 if probe else 1)
                return Ending(error, "".join(parts))
        raise TimeoutError(f"the cell did not end in {GUARD_S:g} s")

    def _take_replies(self, n: int) -> None:
        for _ in range(n):
            self.client.get_shell_msg(timeout=GUARD_S)

    def run(self, code: str) -> str:
        """Runs a cell; returns what it printed. Raises AssertionError if it raised."""
        ending = self.end(self.start(code))
        assert not ending.error, ending.text
        return ending.text

    def holdings(self) -> Holdings:
        return Holdings(**json.loads(self.run(MEASURE)))


@contextmanager
def running_kernel(folder: Path) -> Iterator[Kernel]:
    """A kernel whose current folder is `folder`, with one thread of torch."""
    variables: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    with tempfile.TemporaryDirectory(prefix="marlnb-") as sockets:
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        manager.start_kernel(cwd=str(folder), env=variables)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=GUARD_S)
            yield Kernel(manager, client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
