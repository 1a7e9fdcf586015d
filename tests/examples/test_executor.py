"""The example of an executor runs a batch with the public verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

import marlnb as mnb
from marlnb.batch.batch import Batch
from marlnb.batch.executor import EXECUTORS, executor_of
from marlnb.batch.monitor import watch
from marlnb.errors import BatchError
from tests.batch.batches import notebook
from tests.examples.executor import SequentialExecutor

PROFILE = "executor: sequential\n"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "sequential.yaml"
    path.write_text(PROFILE, encoding="utf-8")
    return str(path)


def test_it_runs_the_jobs_one_after_the_other_and_then_the_report(tmp_path: Path, profile: str) -> None:
    source = notebook(tmp_path / "a.ipynb", "print(n)")
    report = notebook(tmp_path / "report.ipynb", "print(batch)")
    assert EXECUTORS.get("sequential") is SequentialExecutor
    batch = mnb.submit(source, {"n": [1, 2]}, on=profile, out=tmp_path / "batch", then=report)
    watch(batch, poll_s=0.2, progress=False)
    statuses = [batch.job(name).status() for name in ("n=1", "n=2", "report")]
    assert [status.state for status in statuses] == ["complete"] * 3
    assert statuses[0].ended <= statuses[1].started and statuses[1].ended <= statuses[2].started
    assert {info.state for info in executor_of(batch).query(batch).values()} == {"ended"}
    assert len(batch.submissions()) == 1


def test_a_failed_job_keeps_the_report_from_running(tmp_path: Path, profile: str) -> None:
    source, report = notebook(tmp_path / "a.ipynb", "1 / n"), notebook(tmp_path / "report.ipynb", "")
    batch = mnb.submit(source, {"n": [0, 1]}, on=profile, out=tmp_path / "batch", then=report)
    watch(batch, poll_s=0.2, progress=False)
    assert {name: status.state for name, status in batch.statuses().items()} == {"n=0": "failed", "n=1": "complete"}
    assert batch.report_job().status().state == "waiting"


def test_it_refuses_what_it_cannot_do_and_cancels(tmp_path: Path, profile: str) -> None:
    source = notebook(tmp_path / "a.ipynb", "import time", "time.sleep(100)")
    with pytest.raises(BatchError, match="gpus is 1"):
        mnb.submit(source, on=profile, out=tmp_path / "batch", profile_overrides={"gpus": 1})
    batch = mnb.submit(source, {"n": [1, 2]}, on=profile, out=tmp_path / "batch", wait=False)
    executor_of(Batch.open(batch.path)).cancel(batch, batch.jobs()[1:])
    assert batch.job("n=2").status().state == "stopped"
