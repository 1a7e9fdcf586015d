"""The cost of batches: a job against plain papermill and a plain script, recovery from a kill, a sweep of 1000 jobs.

    python -m benchmarks.batch [--part overhead|kills|sweep] [--repetitions 5]

- *overhead*: the same training of a few seconds as a script, as a notebook run by papermill's command, and as a batch's
  job. Each runs in a process of its own; they alternate, in both orders. Wall-clock seconds, imports included. A job
  also makes an HTML page of its notebook, which papermill does not.
- *kills*: a job of the local executor gets SIGKILL or SIGUSR1 in the middle of its training: seconds from the signal to
  the first new iteration in metrics.jsonl. The training is of native MPE; before it resumes, a kernel starts, and
  imports take a few seconds.
- *sweep*: 1000 jobs are planned and submitted, and their status is refreshed. The scheduler is three small scripts that
  answer at once, so this is marlnb's own time. A refresh is one scheduler call and the reading of 1000 jobs' files.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import nbformat

from benchmarks.table import Row, report
from marlnb.batch.batch import Batch
from marlnb.batch.executor import executor_of
from marlnb.batch.job.job import JobStatus
from marlnb.batch.overview import job_rows, query_executor
from marlnb.batch.submit import plan_submission, submit, submit_plan
from marlnb.batch.sweep.grammar import values_of_python
from marlnb.training.runs.files import METRICS

PARAMETERS = 'run = ""  # its folder\nseed = 0\nframes = 60_000'
TRAINING = """\
import marlnb as mnb

experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=32", "rollout_steps=25", "algorithm.epochs=2",
    "tuned=false", "algorithm.minibatch_frames=400", "threads=1", "checkpoint_every=5", f"frames={frames}",
    f"seed={seed}",
)
mnb.train(experiment, run=run, resume=True)
"""
LONG = 100_000_000
WARM_ITERATIONS = 20
PATIENCE_S = 300.0
POLL_S = 0.01
N_JOBS = 1000
FIRST_ID = 17
STUBS = {
    "sbatch": f"echo {FIRST_ID}",
    "scontrol": 'echo "MaxArraySize            = 2001"',
    "squeue": f'i=0; while [ $i -lt {N_JOBS} ]; do echo "{FIRST_ID}_$i|PENDING||Priority"; i=$((i+1)); done',
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="one or some of them; default all")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marlnb-bench-") as folder:
        rows = [row for part in arguments.part or PARTS for row in PARTS[part](Path(folder), arguments.repetitions)]
    report("batch", "Batches", rows)


def overhead(folder: Path, repetitions: int) -> list[Row]:
    """The same training as a script, by papermill, and as a job, in turns."""
    source = _notebook(folder / "train.ipynb")
    script = folder / "train.py"
    script.write_text(f"import sys\n{PARAMETERS}\nrun = sys.argv[1]\n{TRAINING}")
    python = sys.executable

    def by_script(place: Path) -> list[str]:
        return [python, str(script), str(place)]

    def by_papermill(place: Path) -> list[str]:
        place.mkdir()
        return [python, "-m", "papermill", str(source), str(place / "out.ipynb"), "-p", "run", str(place / "run")]

    def by_job(place: Path) -> list[str]:
        batch = begin_nothing(source, place)
        return [python, "-m", "marlnb.batch.job.run_job", str(batch.jobs()[0].folder)]

    ways = {"plain script": by_script, "plain papermill": by_papermill, "batch job": by_job}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):  # the first brings files into memory and does not count
        for name, way in list(ways.items())[:: 1 if repetition % 2 else -1]:
            took = _timed(way(folder / f"{name} {repetition}"))
            if repetition:
                seconds[name].append(took)
    job = seconds["batch job"]
    beyond = {name: tuple(a - b for a, b in zip(job, seconds[name])) for name in ("plain script", "plain papermill")}
    return [
        Row("plain script", tuple(seconds["plain script"]), "s"),
        Row("plain papermill", tuple(seconds["plain papermill"]), "s", against="plain script"),
        Row("batch job", tuple(job), "s", against="plain papermill"),
        *(Row(f"batch job, beyond the {name}", values, "s") for name, values in beyond.items()),
    ]


def kills(folder: Path, repetitions: int) -> list[Row]:
    """From a signal to the next iteration, with the local executor, which restarts the job by itself."""
    rows = []
    for number in (signal.SIGKILL, signal.SIGUSR1):
        source = _notebook(folder / f"{number.name}.ipynb")
        options = {"on": "local", "profile_overrides": {"resubmits": repetitions + 1}, "wait": False, "progress": False}
        batch = submit(source, {"frames": LONG}, out=folder / number.name, **options)  # type: ignore[arg-type]
        try:
            values = tuple(_seconds_of_kill(batch, number) for _ in range(repetitions))
        finally:
            _end(batch)
        rows.append(Row(f"{number.name} to learning again", values, "s"))
    return rows


def sweep(folder: Path, repetitions: int) -> list[Row]:
    """Plans, submits and queries 1000 jobs; each repetition in a folder of its own."""
    source, calls = _notebook(folder / "sweep.ipynb"), folder / "calls"
    seconds: dict[str, list[float]] = {name: [] for name in ("planned", "submitted", "status refreshed")}
    with _stubbed(folder / "bin", calls):
        for repetition in range(repetitions):
            given = values_of_python({"seed": range(N_JOBS)})
            out = folder / f"sweep {repetition}"
            started = time.perf_counter()
            plan = plan_submission(source, given, on="slurm", out=out)
            seconds["planned"].append(time.perf_counter() - started)
            started = time.perf_counter()
            batch = submit_plan(plan, force=True)
            seconds["submitted"].append(time.perf_counter() - started)
            for job in batch.jobs()[: N_JOBS // 2]:
                job.write_status(JobStatus(state="complete", attempt=1, seconds=60.0))
            calls.write_text("")
            started = time.perf_counter()
            known, complaint = query_executor(batch)
            table = job_rows(batch, known)
            seconds["status refreshed"].append(time.perf_counter() - started)
            states = {state: sum(row.state == state for row in table) for state in ("complete", "queued")}
            if complaint or states != {"complete": N_JOBS // 2, "queued": N_JOBS // 2}:
                raise SystemExit(f"the sweep is not what it should be: {states}; {complaint}")
            if len(calls.read_text().splitlines()) != 1:
                raise SystemExit(f"a refresh called the scheduler with {calls.read_text().splitlines()}")
    return [Row(f"{N_JOBS} jobs {what}", tuple(each), "s", target=1.0, at_most=True) for what, each in seconds.items()]


PARTS: Mapping[str, Callable[[Path, int], list[Row]]] = {"overhead": overhead, "kills": kills, "sweep": sweep}


def begin_nothing(source: Path, place: Path) -> Batch:
    """A batch of one job that is written and not started."""
    batch = plan_submission(source, {}, on="local", out=place).batch
    batch.write(source, None)
    return batch


def _seconds_of_kill(batch: Batch, number: signal.Signals) -> float:
    """Waits until the training is running, ends it, and waits for the next attempt's first iteration."""
    job = batch.jobs()[0]
    metrics, before = job.folder / METRICS, job.status().attempt
    _wait(lambda: job.status().state == "running" and job.status().attempt > 0 and _lines(metrics) > WARM_ITERATIONS)
    attempt = job.status().attempt
    process, wanted = job.status().pid, _lines(metrics) + WARM_ITERATIONS
    _wait(lambda: _lines(metrics) >= wanted)
    file, started = metrics.stat().st_ino, time.perf_counter()
    os.kill(process, number)
    _wait(lambda: metrics.stat().st_ino != file)  # cut to the last checkpoint, as the next attempt begins
    kept = _lines(metrics)
    _wait(lambda: _lines(metrics) > kept)
    seconds = time.perf_counter() - started
    _wait(lambda: job.status().attempt > max(before, attempt))
    return seconds


def _end(batch: Batch) -> None:
    """Cancels what runs, and waits until it has ended."""
    executor_of(batch).cancel(batch, batch.jobs())
    with suppress(SystemExit):
        _wait(lambda: not batch.jobs()[0].is_executing)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing happened for {PATIENCE_S:.0f} s")
        time.sleep(POLL_S)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - started


def _notebook(path: Path) -> Path:
    cells = [nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(TRAINING)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@contextmanager
def _stubbed(folder: Path, calls: Path) -> Iterator[None]:
    """A PATH with a scheduler that answers at once and writes each call to a file, as a line."""
    folder.mkdir()
    for name, body in STUBS.items():
        file = folder / name
        file.write_text(f"#!/bin/sh\necho {name} >> '{calls}'\n{body}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


if __name__ == "__main__":
    main()
