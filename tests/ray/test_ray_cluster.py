"""Jobs of a real Ray cluster: submitted, watched in the queue, explained, cancelled and run again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
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
from marlnb.errors import BatchError
from marlnb.lab.queue import Queue
from tests.batch.batches import notebook, wait_until

pytestmark = pytest.mark.timeout(300)
CELLS = (
    "import os, time\nfrom pathlib import Path",
    "print('n is', n, 'threads', os.environ['OMP_NUM_THREADS'], 'key', os.environ['KEY'])\n"
    "if n == 1 and not Path('mended').exists():\n    raise ValueError('not mended')\n"
    "if n == 2:\n    time.sleep(1000)",
)


@pytest.fixture
def folder(tmp_path: Path, ray_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for id, info in RayCluster.find().jobs().items():  # of a test that failed
        if info.is_active:
            RayCluster.find().stop(id)


def jobs_of(queue: Queue, folder: Path) -> dict[str, dict[str, Any]]:
    answer = queue.read([str(folder)], fresh=True)
    assert answer["problems"] == []
    return {job["name"]: job for batch in answer["batches"] for job in batch["jobs"]}


def test_jobs_are_watched_explained_cancelled_and_run_again(folder: Path) -> None:
    source = notebook(folder / "a.ipynb", *CELLS)
    overrides = {"cores": 2, "environment": {"KEY": "s3cret"}}
    batch = submit(source, {"n": [0, 1, 2, 3]}, on="ray", profile_overrides=overrides, out=folder / "batch")
    queue = Queue()
    assert jobs_of(queue, folder)["n=3"]["state"] == "queued"
    wait_until(lambda: jobs_of(queue, folder)["n=2"]["state"] == "running")
    jobs = jobs_of(queue, folder)
    assert jobs["n=0"]["state"] == "complete" and jobs["n=0"]["id"] == submitted_jobs(batch)["n=0"].id
    assert (jobs["n=1"]["state"], jobs["n=1"]["reason"]) == ("failed", "cell 4: ValueError: not mended")
    assert jobs["n=3"]["state"] == "queued" and "resources" in jobs["n=3"]["reason"]  # two of two cores are used
    shown = queue.read_job(str(batch.path), "n=1")
    assert "raise ValueError('not mended')" in shown["failure"]
    assert "n is 1 threads 2 key s3cret" in shown["output"]
    assert shown["rerun_command"] == f"marlnb batch {batch.path} --only n=1"
    assert "s3cret" not in json.dumps(RayCluster.find()._call("GET", "/api/jobs/"))

    effects = queue.cancel(str(batch.path), ["n=2", "n=3"])
    assert sorted(effects.split("; ")) == ["1 job: saves and ends", "1 job: will not start"]
    wait_until(lambda: {jobs_of(queue, folder)[name]["state"] for name in ("n=2", "n=3")} == {"stopped"})
    id = submitted_jobs(batch)["n=3"].id
    wait_until(lambda: RayCluster.find().jobs()[id].reason == "CANCELLED in Ray")
    (batch.cwd / "mended").touch()
    assert queue.requeue(str(batch.path), ["n=1"]) == "1 job submitted"
    wait_until(lambda: jobs_of(queue, folder)["n=1"]["state"] == "complete")


def test_a_lost_job_is_restarted_and_the_report_runs(folder: Path) -> None:
    source = notebook(folder / "a.ipynb", "import time\ntime.sleep(0 if batch or run.endswith('n=0') else 4)")
    submit(source, {"n": [0, 1]}, on="ray", then=source, out=folder / "batch")
    batch = Batch.open(folder / "batch")
    wait_until(lambda: batch.job("n=1").is_executing)
    id = submitted_jobs(batch)["n=1"].id
    RayCluster.find().stop(id)  # as `ray job stop` does: not restarted by itself
    wait_until(lambda: RayCluster.find().jobs()[id].reason == "CANCELLED in Ray")
    assert batch.job("n=1").status().state == "interrupted"
    submit(batch.path, wait=True, progress=False)
    assert {status.state for status in batch.statuses().values()} == {"complete"}
    assert batch.report_job().status().state == "complete" and REPORT in submitted_jobs(batch)


def test_a_job_that_cannot_start_says_why(folder: Path) -> None:
    source = notebook(folder / "a.ipynb", "pass")
    overrides = {"python": "/missing/python", "resubmits": 0}
    batch = submit(source, {"n": 0}, on="ray", profile_overrides=overrides, out=folder / "batch")
    (name,) = (job.name for job in batch.jobs())
    queue = Queue()
    wait_until(lambda: "/missing/python" in jobs_of(queue, folder)[name]["reason"])
    assert jobs_of(queue, folder)[name]["reason"].startswith("exit code 127: ")
    watch(batch, progress=False)
    assert batch.job(name).status().state == "failed"
    assert cancel(batch) == {}


def test_the_commands(folder: Path) -> None:
    """A dry run, the doctor, a wrong token, and a batch."""
    source = str(notebook(folder / "a.ipynb", "pass"))
    words = ["batch", source, "-p", "n=0,1", "--on", "ray", "--out", "batch"]
    code, text = marlnb(*words, "--dry-run")
    assert code == 0 and "2 jobs of Ray at http://127.0.0.1" in text and text.count("marlnb.batch.job.run_job") == 2
    assert not Path("batch").exists()
    code, text = marlnb("doctor", source, "--on", "ray")
    assert "executor: Ray 2." in text and "its largest node has 2 cores, 0 GPUs" in text
    code, text = marlnb("doctor", source, "--on", "ray", "--set", "cores=3")
    assert code == 1 and "cores is 3, and no node has more than 2: jobs would not start" in text
    code, text = marlnb(*words, "--wait")
    assert code == 0 and {status.state for status in Batch.open("batch").statuses().values()} == {"complete"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", "x" * 64)
        with pytest.raises(BatchError, match="asks for a valid token"):
            RayCluster.find().jobs()
        patch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")
        with pytest.raises(NoSchedulerError, match="no Ray cluster answers"):
            RayCluster.find().jobs()


def marlnb(*words: str) -> tuple[int, str]:
    process = subprocess.run([sys.executable, "-m", "marlnb", *words], capture_output=True, text=True)
    return process.returncode, process.stdout + process.stderr
