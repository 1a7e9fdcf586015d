"""The local executor: real supervisors, real kernels, real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.folder import Batch
from marlnb.batch.local.process import processes_of
from marlnb.batch.local.record import read_entries
from marlnb.batch.profile import Profile
from marlnb.batch.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.training.lock import process_alive, read_holder

Make = Callable[..., Batch]
COUNT_ATTEMPTS = (
    "import os, signal, time, pathlib\n"
    "attempts = pathlib.Path(run) / 'kept'; attempts.mkdir(exist_ok=True)\n"
    "begun = len(list(attempts.iterdir())); (attempts / str(begun)).touch()"
)
KILL_JOB = "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
KILL_KERNEL = "os.kill(os.getpid(), signal.SIGKILL)"
LONG = "import time\nprint('sleeping', flush=True)\ntime.sleep(100)"


def notebook(path: Path, *cells: str) -> Path:
    parameters = nbformat.v4.new_code_cell('run = ""\nn = 0\nbatch = ""', metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes batches whose supervisors are ended after the test; core locks are the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[Batch] = []

    def batch(*cells: str, n: tuple[int, ...] = (0,), then: str | None = None, **profile: Any) -> Batch:
        name = f"batch{len(made)}"
        report = None if then is None else notebook(tmp_path / f"{name}-then.ipynb", then)
        source = notebook(tmp_path / f"{name}.ipynb", *cells)
        made.append(Batch.create(tmp_path / name, source, Sweep({"n": n}, {}), Profile(**profile), then=report))
        return made[-1]

    yield batch
    for each in made:
        for folder in each.submissions():
            pid = read_holder(folder / "supervisor.lock").get("pid")
            if isinstance(pid, int) and process_alive(pid):
                os.kill(pid, signal.SIGKILL)
        for job in each.jobs():
            for process in processes_of(job.folder):
                os.kill(process, signal.SIGKILL)


def submit(batch: Batch, *, then: bool = False) -> None:
    batch.executor().check()
    batch.executor().submit(batch, batch.jobs(), then=then)


def wait_until(reached: Callable[[], object], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def finish(batch: Batch, *names: str) -> dict[str, tuple[str, str]]:
    """State and reason of each job when the supervisor has ended."""
    known = batch.executor().known
    wait_until(lambda: all(heard.state == "ended" for heard in known(batch).values()))
    wait_until(lambda: not process_alive(supervisor(batch)))
    return {name: (status.state, status.reason) for name, status in batch.statuses().items()}


def supervisor(batch: Batch) -> int:
    pid = read_holder(batch.submissions()[-1] / "supervisor.lock")["pid"]
    assert isinstance(pid, int)
    return pid


def output(batch: Batch, name: str, cell: int = -1) -> str:
    cells = nbformat.read(batch.job(name).folder / "notebook.ipynb", 4).cells
    return "".join(output.get("text", "") for output in cells[cell].outputs)


def is_sleeping(batch: Batch, name: str) -> bool:
    log = batch.job(name).log
    return log.exists() and "sleeping\n" in log.read_text(encoding="utf-8")


def test_one_fails_among_good_ones_and_the_report_waits_for_all(make: Make) -> None:
    cell = "import os\nprint(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])\n1 / (n - 1)"
    batch = make(cell, n=(0, 1), then="print(batch)")
    submit(batch, then=True)
    found = finish(batch)
    assert found["n=0"] == ("complete", "")
    assert found["n=1"][0] == "failed" and "ZeroDivisionError" in found["n=1"][1]
    assert batch.job("n=1").status().attempt == 1  # a cell that raised would raise again
    assert not batch.report_job().folder.exists()
    cores, threads = output(batch, "n=0").rsplit(maxsplit=1)
    assert len(eval(cores)) == 1 and threads == "1"
    assert "n=1: failed" in (batch.submissions()[0] / "supervisor.log").read_text(encoding="utf-8")
