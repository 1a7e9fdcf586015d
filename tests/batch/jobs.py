"""Jobs for tests: small notebooks, executed by real kernels in processes that can be signalled and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat

from marlnb.batch.job.job import Job

PARAMETERS = 'run = "runs/x"\nn = 1\ntext = ""\nframes = 20_000'
TRAINING = """
import marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=4", "rollout_steps=25", "threads=1",
    "algorithm.epochs=1", "model.hidden=[8]", f"frames={frames}", "checkpoint_every=20", "keep_checkpoints=3")
trained = mnb.train(experiment, run=run, resume=True)
assert trained.status()["state"] == "complete"
"""


def notebook(path: Path, *cells: str) -> Path:
    parameters = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


def make(folder: Path, *cells: str, **parameters: Any) -> Job:
    """A job in `folder`, its notebook next to it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    source = notebook(folder.parent / f"{folder.name}.ipynb", *cells)
    job = Job(folder, source, parameters, folder.parent)
    job.write()
    return job


def start(job: Job, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """`python -m marlnb.batch.job.run_job`, leading a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "marlnb.batch.job.run_job", str(job.folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        start_new_session=True,
    )


def run(job: Job, **environment: str) -> int:
    """Runs a job to its end, and returns its exit code."""
    process = start(job, environment)
    try:
        return process.wait(timeout=200)
    finally:
        process.kill()
        process.wait()


def wait_for(holds: Callable[[], Any], process: subprocess.Popen[bytes] | None = None, *, within_s: float = 120) -> Any:
    """The first true value of `holds`; fails when it takes too long, or when the process ends first."""
    deadline = time.monotonic() + within_s
    while not (value := holds()):
        assert process is None or process.poll() is None, "the process ended first"
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
    return value


def texts(job: Job) -> list[str]:
    """What each code cell of the executed notebook printed."""
    cells = nbformat.read(job.folder / "notebook.ipynb", as_version=4).cells
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in cells if cell.cell_type == "code"]
