"""Jobs of a real Ray cluster: submitted, watched in the queue, explained, cancelled and run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.cancel import cancel
from marlnb.batch.executor import NoSchedulerError
from marlnb.batch.monitor import watch
from marlnb.batch.ray.cluster import RayCluster
from marlnb.batch.ray.submission_record import submitted_jobs
from marlnb.batch.submit import submit
from marlnb.lab.queue import Queue
from tests.batch.batches import notebook
from tests.browser.lab import until

CELLS = (
    "import os, time\nfrom pathlib import Path",
    "print('n is', n, 'threads', os.environ['OMP_NUM_THREADS'])\n"
    "if n == 1 and not Path('mended').exists():\n    raise ValueError('not mended')\n"
    "if n == 2:\n    time.sleep(1000)",
)


@pytest.fixture
def folder(tmp_path: Path, ray_address: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ray_address)
    monkeypatch.chdir(tmp_path)
    until(has_started)
    return tmp_path


def has_started() -> bool:
    try:
        return bool(RayCluster.find().jobs() is not None)
    except NoSchedulerError:
        return False


def jobs_of(queue: Queue, folder: Path) -> dict[str, dict[str, Any]]:
    answer = queue.read([str(folder)], fresh=True)
    assert answer["problems"] == []
    return {job["name"]: job for batch in answer["batches"] for job in batch["jobs"]}


@pytest.mark.timeout(300)
def test_jobs_are_watched_explained_cancelled_and_run_again(folder: Path) -> None:
    source = notebook(folder / "a.ipynb", *CELLS)
    batch = submit(source, {"n": [0, 1, 2, 3]}, on="ray", profile_overrides={"cores": 2}, out=folder / "batch")
    queue = Queue()
    assert jobs_of(queue, folder)["n=3"]["state"] == "queued"
    until(lambda: jobs_of(queue, folder)["n=2"]["state"] == "running", 120)
    jobs = jobs_of(queue, folder)
    assert jobs["n=0"]["state"] == "complete" and jobs["n=0"]["id"] == submitted_jobs(batch)["n=0"].id
    assert (jobs["n=1"]["state"], jobs["n=1"]["reason"]) == ("failed", "cell 3: ValueError: not mended")
    assert jobs["n=3"]["state"] == "queued" and "resources" in jobs["n=3"]["reason"]  # two of two cores are used
    shown = queue.read_job(str(batch.path), "n=1")
    assert "raise ValueError('not mended')" in shown["failure"] and "n is 1 threads 2" in shown["output"]

    assert queue.cancel(str(batch.path), ["n=2", "n=3"]) in (
        "1 job: saves and ends; 1 job: will not start",
        "1 job: will not start; 1 job: saves and ends",
    )
    until(lambda: {jobs_of(queue, folder)[name]["state"] for name in ("n=2", "n=3")} == {"stopped"})
    id = submitted_jobs(batch)["n=3"].id
    until(lambda: RayCluster.find().jobs()[id].reason == "CANCELLED in Ray")
    (batch.cwd / "mended").touch()
    assert queue.requeue(str(batch.path), ["n=1"]) == "1 job submitted"
    until(lambda: jobs_of(queue, folder)["n=1"]["state"] == "complete", 120)


@pytest.mark.timeout(300)
def test_a_lost_job_is_restarted_and_the_report_runs(folder: Path) -> None:
    source = notebook(folder / "a.ipynb", "import time\ntime.sleep(0 if batch or run.endswith('n=0') else 4)")
    submit(source, {"n": [0, 1]}, on="ray", then=source, out=folder / "batch")
    batch = Batch.open(folder / "batch")
    until(lambda: batch.job("n=1").is_executing, 120)
    RayCluster.find().stop(submitted_jobs(batch)["n=1"].id)  # as `ray job stop` does: not restarted by itself
    until(lambda: batch.job("n=1").status().state == "interrupted")
    submit(batch.path, wait=True, progress=False)
    assert {status.state for status in batch.statuses().values()} == {"complete"}
    assert batch.report_job().status().state == "complete" and REPORT in submitted_jobs(batch)


@pytest.mark.timeout(120)
def test_a_job_that_cannot_start_says_why(folder: Path) -> None:
    source = notebook(folder / "a.ipynb", "pass")
    overrides = {"python": "/missing/python", "resubmits": 0}
    batch = submit(source, {"n": 0}, on="ray", profile_overrides=overrides, out=folder / "batch")
    (name,) = (job.name for job in batch.jobs())
    queue = Queue()
    until(lambda: "/missing/python" in jobs_of(queue, folder)[name]["reason"])
    assert jobs_of(queue, folder)[name]["reason"].startswith("exit code 127: ")
    watch(batch, progress=False)
    assert batch.job(name).status().state == "failed"
    assert cancel(batch) == {}
