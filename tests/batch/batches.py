"""Batches for tests: small notebooks, or a shell script in the place of Python where no notebook is needed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.executor import executor_of
from marlnb.batch.local.process import processes_of
from marlnb.batch.local.supervisor_files import has_supervisor
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from marlnb.training.runs.lock import process_alive, read_holder

PARAMETERS = 'run = ""\nn = 0\nbatch = ""'


class Maker:
    """Makes batches in a folder and, at the end, ends what they began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Batch] = []

    def __call__(self, *cells: str, n: Sequence[int] = (0,), then: str | None = None, **profile: Any) -> Batch:
        name = f"batch{len(self.made)}"
        source = notebook(self.folder / f"{name}.ipynb", *cells)
        report = None if then is None else notebook(self.folder / f"{name}-then.ipynb", then)
        sweep = Sweep({"n": tuple(n)}, {})
        self.made.append(Batch.create(self.folder / name, source, sweep, Profile(**profile), then=report))
        return self.made[-1]

    def script(self, text: str) -> str:
        """An executable that stands for the Python of a job; its third argument is the job's folder."""
        path = self.folder / f"python{len(self.made)}"
        path.write_text(f"#!/bin/bash\ncd $3\n{text}\n")
        path.chmod(0o700)
        return str(path)

    def end(self) -> None:
        for batch in self.made:
            for number, folder in enumerate(batch.submissions()):
                if has_supervisor(folder):
                    kill(supervisor(batch, number))
            for job in batch.jobs():
                for pid in processes_of(job.folder):
                    kill(pid)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Batches in a folder of the test's own; so are the locks by which supervisors share cores."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    maker = Maker(tmp_path)
    yield maker
    maker.end()


def notebook(path: Path, *cells: str) -> Path:
    parameters = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


def submit(batch: Batch, *, then: bool = False, reason: str = "") -> None:
    executor_of(batch).check()
    executor_of(batch).submit(batch, batch.jobs(), then=then, reason=reason)


def supervisor(batch: Batch, number: int = -1) -> int:
    """The process of the newest submission, or of another one."""
    pid = read_holder(batch.submissions()[number] / "supervisor.lock")["pid"]
    assert isinstance(pid, int)
    return pid


def finish(batch: Batch) -> dict[str, tuple[str, str]]:
    """State and reason of each job when the supervisor has ended."""
    wait_until(lambda: not process_alive(supervisor(batch)))
    assert {heard.state for heard in executor_of(batch).query(batch).values()} == {"ended"}
    return {name: (status.state, status.reason) for name, status in batch.statuses().items()}


def output(folder: Path, cell: int = -1) -> str:
    cells = nbformat.read(folder / "notebook.ipynb", 4).cells
    return "".join(output.get("text", "") for output in cells[cell].outputs)


def has_printed(batch: Batch, name: str, line: str) -> bool:
    log = batch.job(name).log
    return log.exists() and line in log.read_text(encoding="utf-8").splitlines()


def wait_until(reached: Callable[[], object], timeout_s: float = 150.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    if process_alive(pid):
        os.kill(pid, number)
