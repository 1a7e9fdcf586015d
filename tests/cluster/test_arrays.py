"""A sweep on a real SLURM: one array with a limit on parallel jobs, a report at the end, and a second call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from tests.cluster import notebooks
from tests.cluster.cluster import Cluster
from tests.cluster.processes import until
from tests.cluster.sending import Sent, marlnb

pytestmark = pytest.mark.timeout(600)


def test_one_array_two_at_once_and_then_the_report(cluster: Cluster, work: Path) -> None:
    source = notebooks.write(work / "quick.ipynb", notebooks.QUICK)
    report = notebooks.write(work / "report.ipynb", notebooks.REPORT)
    calls = cluster.calls()
    words = ("-p", "seed=0..4", "-p", "seconds=4", "--set", "at_once=2", "--then", str(report))
    sent = Sent.by(cluster, source, work / "sweep", *words)
    assert sum(" sbatch --parsable" in line for line in calls.lines()) == 2, calls.lines()  # the array, the report

    side_by_side = []

    def done() -> bool:
        side_by_side.append([state for _, state in sent.ids()].count("RUNNING"))
        return sent.report_state() == "complete"

    until("the report is complete", done, timeout_s=300)
    assert max(side_by_side) == 2
    statuses = Batch.open(sent.folder).statuses()
    assert {status.state for status in statuses.values()} == {"complete"}
    started = Batch.open(sent.folder).report_job().status().started
    assert started > max(status.ended for status in statuses.values())
    (table,) = [
        text
        for source, text, _ in notebooks.executed_cells(sent.folder / "report" / "notebook.ipynb")
        if "table" in source
    ]
    assert table == "['complete'] 5\n"
    assert {status.host for status in statuses.values()} == {cluster.node}


def test_no_report_when_one_failed_and_the_same_command_completes_both(cluster: Cluster, work: Path) -> None:
    source = notebooks.write(work / "failing.ipynb", notebooks.FAILING)
    report = notebooks.write(work / "report.ipynb", notebooks.REPORT)
    sent = Sent.by(cluster, source, work / "sweep", "-p", "seed=0..2", "--then", str(report))
    states = sent.await_states("complete", "failed")
    assert states == {"seed=0": "complete", "seed=1": "failed", "seed=2": "complete"}
    listed = marlnb(cluster, "jobs", str(sent.folder), check=False)
    assert listed.returncode == 1
    for words in ("seed=1", "cell 4", "the second seed does not work", f"marlnb batch {sent.folder} --only seed=1"):
        assert words in listed.stdout + listed.stderr
    until("the scheduler gave the report up", lambda: "PENDING" not in [state for _, state in sent.ids()])
    assert sent.report_state() == "waiting"
    assert not (sent.folder / "report" / "notebook.ipynb").exists()

    (sent.folder / "mended").touch()
    sent.again()
    until("the report is complete", lambda: sent.report_state() == "complete", timeout_s=240)
    attempts = {job.name: job.status().attempt for job in Batch.open(sent.folder).jobs()}
    assert attempts == {"seed=0": 1, "seed=1": 2, "seed=2": 1}


def test_a_dry_run_prints_the_script_that_is_then_submitted(cluster: Cluster, work: Path) -> None:
    source = notebooks.write(work / "quick.ipynb", notebooks.QUICK)
    calls, words = (
        cluster.calls(),
        ("batch", str(source), "-p", "seed=0,1", "--on", "slurm", "--out", str(work / "sweep")),
    )
    printed = marlnb(cluster, *words, "--dry-run").stdout
    assert not any(" sbatch --parsable" in line for line in calls.lines())
    assert not (work / "sweep").exists()
    marlnb(cluster, *words, "--yes")
    script = (work / "sweep" / "submissions" / "1" / "script.sbatch").read_text()
    assert script in printed
    assert "#SBATCH --array=0-1" in script and "\nexec " in script


HOSTILE = 'it\'s "$(touch pwned)"; `touch pwned` & ünï 雪\n\\n ${HOME} %j'


def test_hostile_folders_and_values_arrive_unchanged_and_run_nothing(cluster: Cluster, work: Path) -> None:
    folder = work / "it's a $(touch pwned) `touch pwned`; ünï 雪 %j %%a"
    folder.mkdir()
    source = notebooks.write(folder / "quick $(touch pwned).ipynb", notebooks.QUICK)
    values = work / "values.json"
    values.write_text(json.dumps({"text": HOSTILE, "seconds": 0.0}))
    sent = Sent.by(cluster, source, folder / "sweep '1'; touch pwned", "--parameters-file", str(values))
    sent.await_complete()
    (ran,) = sent.folder.glob("jobs/*/ran")
    assert ran.read_text(encoding="utf-8") == HOSTILE
    assert [path for path in cluster.settings.state.rglob("*pwned*") if path.name == "pwned"] == []
    assert marlnb(cluster, "jobs", str(sent.folder)).returncode == 0
