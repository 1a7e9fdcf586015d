"""What a notebook's kernel needs at most, so that a hub can be sized for a class."""

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

EVERY_S = 0.1
MB = 1e6


@dataclass(frozen=True)
class Memory:
    """Of one kernel, in bytes: `peak` is its largest resident size, `own` the largest part that no other process can
    share (libraries that several kernels on one machine have loaded lie in memory once); `work_s` is what it has
    computed, in seconds of one core."""

    notebook: str
    peak: int
    own: int
    work_s: float

    def __str__(self) -> str:
        held = f"{self.peak / MB:6.0f} MB, of these its own {self.own / MB:6.0f} MB"
        return f"{self.notebook:<40} {held}; {self.work_s:3.0f} s of one core"


def measure(path: str | os.PathLike[str], threads: int = 1) -> Memory:
    """Executes a notebook in an empty folder of its own, with its own parameters, and watches its kernel (Linux).

    Raises:
        ConfigError: there is no /proc/<pid>/smaps_rollup here.
        CellExecutionError: a cell failed.
    """
    source = Path(path).absolute()
    if not Path("/proc/self/smaps_rollup").exists():
        raise ConfigError("memory is read from /proc/<pid>/smaps_rollup, which this system does not have")
    notebook = nbformat.read(source, 4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        runs = f"run = {str(Path(folder) / 'run')!r}"
        places = [k for k, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])]
        notebook.cells.insert(places[0] + 1, nbformat.v4.new_code_cell(runs))  # type: ignore[no-untyped-call]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        reached = {"transport": "ipc", "ip": str(Path(folder) / "kernel")}  # no port that others could connect to
        place = {"metadata": {"path": str(source.parent)}}
        client = NotebookClient(
            notebook, resources=place, config=Config({"KernelManager": reached}), startup_timeout=180
        )
        with client.setup_kernel(env=environment):
            watch = _Watch(int(client.km.provisioner.pid))  # type: ignore[union-attr]
            try:
                for number, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, number)
            finally:
                watch.end()
    return Memory(source.name, watch.peak, watch.own, watch.work_s)


class _Watch(threading.Thread):
    """Looks at a process until told to end: the system itself keeps `peak`, `own` is the largest that was seen."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process, self._over = Path(f"/proc/{pid}"), threading.Event()
        self.peak = self.own = 0
        self.work_s = 0.0
        self.start()

    def run(self) -> None:
        while not self._over.wait(EVERY_S):
            self._look()

    def end(self) -> None:
        self._over.set()
        self.join()
        self._look()

    def _look(self) -> None:
        try:
            self.peak = max(self.peak, self._bytes("status", "VmHWM"))
            self.own = max(self.own, self._bytes("smaps_rollup", "Private_Clean", "Private_Dirty"))
            times = (self._process / "stat").read_text().rpartition(")")[2].split()[11:13]  # of user and system
            self.work_s = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        except OSError:  # it has ended
            return

    def _bytes(self, file: str, *names: str) -> int:
        lines = (line.split() for line in (self._process / file).read_text().splitlines())
        return sum(1024 * int(words[1]) for words in lines if words and words[0].rstrip(":") in names)
