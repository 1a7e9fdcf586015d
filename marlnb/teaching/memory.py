"""Measure the peak memory of a notebook's kernel, to choose the size of a hub for a class."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from marlnb.errors import ConfigError

POLL_S = 0.1
MB = 1e6


@dataclass(frozen=True)
class Memory:
    """The needs of one kernel.

    Attributes:
        notebook: its name.
        peak: largest resident size in bytes.
        private: largest part that no other process can share, in bytes. Libraries that several kernels on one machine
            have loaded are in memory once.
        work_s: computing time in seconds of one core.
    """

    notebook: str
    peak: int
    private: int
    work_s: float

    def __str__(self) -> str:
        memory = f"{self.peak / MB:6.0f} MB, of which private {self.private / MB:6.0f} MB"
        return f"{self.notebook:<40} {memory}; {self.work_s:3.0f} s of one core"


def measure(path: str | os.PathLike[str], threads: int = 1) -> Memory:
    """Executes a notebook in an empty folder, with its default parameters, and monitors its kernel (Linux only).

    Raises:
        ConfigError: this system has no /proc/<pid>/smaps_rollup, or the notebook has no cell tagged `parameters`.
        CellExecutionError: a cell failed.
    """
    source = Path(path).absolute()
    if not Path("/proc/self/smaps_rollup").exists():
        raise ConfigError("measuring memory needs /proc/<pid>/smaps_rollup, which this system does not have")
    notebook = nbformat.read(source, 4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        runs = f"run = {str(Path(folder) / 'run')!r}"
        indices = [k for k, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])]
        if not indices:
            raise ConfigError(f"{source} has no cell tagged 'parameters', which names the folder of its run")
        notebook.cells.insert(indices[0] + 1, nbformat.v4.new_code_cell(runs))  # type: ignore[no-untyped-call]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        connection = {"transport": "ipc", "ip": str(Path(folder) / "kernel")}  # no port that others could connect to
        resources = {"metadata": {"path": str(source.parent)}}
        client = NotebookClient(
            notebook, resources=resources, config=Config({"KernelManager": connection}), startup_timeout=180
        )
        with client.setup_kernel(env=environment):
            monitor = _Monitor(int(client.km.provisioner.pid))  # type: ignore[union-attr]
            try:
                for number, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, number)
            finally:
                monitor.end()
    return Memory(source.name, monitor.peak, monitor.private, monitor.work_s)


class _Monitor(threading.Thread):
    """Polls a process until `end`. The system records `peak`; `private` is the largest polled value."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process, self._has_ended = Path(f"/proc/{pid}"), threading.Event()
        self.peak = self.private = 0
        self.work_s = 0.0
        self.start()

    def run(self) -> None:
        while not self._has_ended.wait(POLL_S):
            self._poll()

    def end(self) -> None:
        self._has_ended.set()
        self.join()
        self._poll()

    def _poll(self) -> None:
        try:
            self.peak = max(self.peak, self._bytes("status", "VmHWM"))
            self.private = max(self.private, self._bytes("smaps_rollup", "Private_Clean", "Private_Dirty"))
            times = (self._process / "stat").read_text().rpartition(")")[2].split()[11:13]  # of user and system
            self.work_s = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        except OSError:  # the process has ended
            return

    def _bytes(self, file: str, *names: str) -> int:
        lines = (line.split() for line in (self._process / file).read_text().splitlines())
        return sum(1024 * int(words[1]) for words in lines if words and words[0].rstrip(":") in names)
