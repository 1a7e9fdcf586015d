"""A notebook's kernel without a page, and how each of its threads spends its time, as Linux counts it.

Other load on the machine does not change these figures: time spent waiting for a core is counted separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

STARTED_S = 120.0


class Kernel:
    """A kernel that runs cells and is measured.

    Attributes:
        pid: its process.
    """

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        self.pid = int(self.ask("import os; print(os.getpid())"))

    def ask(self, cell: str) -> str:
        """Runs a cell and returns what it prints.

        Raises:
            RuntimeError: the cell raised.
        """
        printed: list[str] = []

        def heard(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        reply = self._client.execute_interactive(cell, timeout=STARTED_S, output_hook=heard)
        if reply["content"]["status"] != "ok":
            raise RuntimeError("\n".join(reply["content"]["traceback"]))
        return "".join(printed)


@contextmanager
def kernel_in(folder: Path) -> Iterator[Kernel]:
    """A new kernel that works in a folder; it is ended afterwards."""
    manager, client = start_new_kernel(startup_timeout=STARTED_S, cwd=str(folder))
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def times_of(pid: int) -> dict[int, tuple[float, float]]:
    """By thread of a process: seconds on a core, and seconds of waiting for one."""
    times = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        try:
            ran, waited, _ = (folder / "schedstat").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # it ended just now
            continue
        times[int(folder.name)] = (int(ran) / 1e9, int(waited) / 1e9)
    return times
