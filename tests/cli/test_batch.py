"""marlnb batch, jobs, cancel and stop: what they print and the codes with which they end."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JOB_LOCK, CellError, JobInfo, JobStatus
from marlnb.cli import main
from marlnb.cli.batches.jobs import end_of_batch
from marlnb.experiment import Experiment
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Run
from tests.batch import test_submit
from tests.batch.batches import Maker
from tests.batch.batches import make as make
from tests.batch.jobs import notebook

noting = test_submit.noting
Notes = list[tuple[list[str], bool]]


def marlnb(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    code = main(words)
    output = capsys.readouterr()
    return code, output.out, output.err


def test_parameters_are_shown(noting: Notes, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = marlnb(capsys, "batch", "a.ipynb", "--parameters")
    assert code == 0 and out.splitlines()[0].split() == ["parameter", "takes", "default", "meaning"]
    assert "frames     a whole number  20_000" in out
    code, out, _ = marlnb(capsys, "batch", "a.ipynb", "--parameters", "--json")
    assert json.loads(out)["n"] == {"takes": "a whole number", "default": 1, "code": "1", "help": ""}


def test_dry_run_prints_plan_and_script_and_writes_nothing(noting: Notes, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("batch", "a.ipynb", "-p", "n=0..2", "-p", "text=a b", "--on", "noting", "--set", "cores=3", "--dry-run")
    code, out, err = marlnb(capsys, *words)
    assert code == 0 and err == "" and noting == [] and not Path("runs").exists()
    assert "3 of a.ipynb: n (3), with the noting executor" in out and out.endswith("\nn=0\nn=1\nn=2\n")
    code, out, _ = marlnb(capsys, *words, "--json")
    plan = json.loads(out)
    assert plan["script"] == "n=0\nn=1\nn=2\n" and plan["sweep"] == {"axes": {"n": [0, 1, 2]}, "fixed": {"text": "a b"}}
    assert plan["profile"]["cores"] == 3 and [job["submits"] for job in plan["jobs"]] == [True, True, True]


def test_a_dry_run_checks_the_experiments_without_torch(tmp_path: Path) -> None:
    notebook(
        tmp_path / "a.ipynb",
        """import marlnb as mnb
experiment = mnb.Experiment.compose("env=mpe/simple_spread", f"algorithm={text or 'ippo'}")""",
    )
    code = "import sys; from marlnb.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    for algorithms, answer in (("ippo,mappo", "0 False"), ("ippo,mapo", "2 False")):
        words = [sys.executable, "-c", code, "batch", "a.ipynb", "-p", f"text={algorithms}", "--dry-run"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=200, cwd=tmp_path)
        assert done.stdout.splitlines()[-1] == answer
        assert ("did you mean 'mappo'" in done.stderr) == ("mapo" in algorithms.split(","))


def test_submitting_returns_with_the_path(noting: Notes, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("n: [5, 6]\ntext: x\n", encoding="utf-8")
    words = ("batch", "a.ipynb", "--parameters-file", "sweep.yaml", "-p", "text=y,z", "--on", "noting")
    code, out, err = marlnb(capsys, *words)
    path = tmp_path / "runs" / "a-batch"
    assert code == 0 and out == f"{path}\n" and "4 new" in err and f"to wait: marlnb watch {path}" in err
    assert noting == [(["n=5,text=y", "n=5,text=z", "n=6,text=y", "n=6,text=z"], False)]
    Noting = test_submit.Noting
    Noting.answers.update({name: JobInfo("queued") for name in noting[0][0]})
    code, out, _ = marlnb(capsys, *words, "--json")
    assert code == 0 and json.loads(out) == {"batch": str(path), "submitted": []} and len(noting) == 1


def test_a_wait_for_requested_jobs_starts_no_others(
    make: Maker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make.folder)
    notebook(Path("a.ipynb"), "")
    python = make.script('echo \'{"state": "complete", "attempt": 1}\' > job_status.json')
    words = ("batch", "a.ipynb", "-p", "n=0..2", "--set", f"python={python}", "--then", "compare", "--only", "n=1")
    code, out, err = marlnb(capsys, *words)
    assert code == 0 and out.endswith("runs/a-batch: 1 complete, 2 waiting\n") and "/1 complete" in err
    assert len(Batch.open("runs/a-batch").submissions()) == 1


def test_bad_requests(noting: Notes, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in [
        (("a.ipynb", "-p", "m=1"), "no parameter 'm' of a.ipynb"),
        (("a.ipynb", "-p", "n=x"), "parameter 'n' must be a whole number; got 'x' (its default is 1)"),
        (("a.ipynb", "-p", "n"), "-p: expected NAME=VALUE; got 'n'"),
        (("a.ipynb", "--set", "cores"), "--set: expected NAME=VALUE"),
        (("a.ipynb", "--set", "cores=none"), "must be a whole number"),
        (("a.ipynb", "--on", "nowhere"), "no profile 'nowhere'"),
        (("nothing.ipynb",), "the notebook nothing.ipynb does not exist"),
        (("a.ipynb", "--wait", "--detach"), "not allowed with"),
    ]:
        code, out, err = marlnb(capsys, "batch", *words)
        assert code == 2 and out == "" and message in err, err
    assert not Path("runs").exists()


def test_many_jobs_are_asked_about_at_a_terminal_alone(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", "1")
    here, there = pty.openpty()
    command = [sys.executable, "-m", "marlnb", "batch", "a.ipynb", "-p", "n=1..21"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=there, stdout=there, stderr=there) as process:
        os.close(there)
        output = b""
        while b"start 21 jobs? [y/N] " not in output:
            output += os.read(here, 4096)
        os.write(here, b"n\n")
        assert process.wait(120) == 2
    os.close(here)
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def batch(noting: Notes, capsys: pytest.CaptureFixture[str]) -> Batch:
    """One complete job, one that failed, one that is queued."""
    main(["batch", "a.ipynb", "-p", "n=0..2", "--on", "noting"])
    made = Batch.open("runs/a-batch")
    error = CellError(3, "x = 1\n1 / 0", "ZeroDivisionError", "division by zero", "Traceback\n1 / 0")
    made.job("n=0").write_status(JobStatus("complete", attempt=1, n_cells=3, cell=3, seconds=65.0))
    made.job("n=1").write_status(JobStatus("failed", "a cell failed", attempt=2, n_cells=4, cell=3, error=error))
    made.job("n=1").log.write_text("first\nlast words\n")
    test_submit.Noting.answers["n=2"] = JobInfo("queued", "Priority", "17_2")
    noting.clear()
    capsys.readouterr()
    return made


def test_jobs_tells_states_and_what_failed(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = marlnb(capsys, "jobs", "runs/a-batch")
    rows = [line.split() for line in out.splitlines()]
    assert rows[1][:2] == ["n=0", "complete"] and rows[1][-1] == "1:05"
    assert rows[2] == ["n=1", "failed", "cell", "3", "of", "4", "2", "a", "cell", "failed"]
    assert rows[3] == ["n=2", "queued", "0", "Priority"]
    assert out.endswith("3 jobs: 1 complete, 1 queued, 1 failed\n") and code == 1
    for text in ("job n=1", '"n": 1', "cell 3 of 4", "x = 1", "ZeroDivisionError: division by zero", "last words"):
        assert text in err
    assert f"marlnb batch {batch.path} --only n=1" in err


def test_jobs_as_json_log_and_list(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = marlnb(capsys, "jobs", "runs/a-batch", "--json")
    listing: dict[str, Any] = json.loads(out)
    assert code == 1 and [job["state"] for job in listing["jobs"]] == ["complete", "failed", "queued"]
    assert listing["jobs"][1]["error"]["cell"] == 3 and listing["jobs"][1]["rerun_command"].endswith("--only n=1")
    assert marlnb(capsys, "jobs", "runs/a-batch", "--log", "n=1", "--lines", "1")[:2] == (0, "last words\n")
    for lines in ("0", "-1"):
        code, out, err = marlnb(capsys, "jobs", "runs/a-batch", "--log", "n=1", "--lines", lines)
        assert (code, out) == (2, "") and f"--lines: expected a whole number of at least 1; got {lines}" in err
    code, out, _ = marlnb(capsys, "jobs")
    assert code == 0 and " ".join(out.splitlines()[1].split()) == (
        "runs/a-batch a.ipynb 3 1 complete, 1 waiting, 1 failed"
    )
    Path("runs/damaged").mkdir()
    Path("runs/damaged/batch.json").write_text("{")
    code, out, err = marlnb(capsys, "jobs")
    assert code == 1 and "runs/a-batch" in out and re.search(r"left out: .*runs/damaged/batch\.json", err)
    code, out, _ = marlnb(capsys, "jobs", "--json")
    listing = json.loads(out)
    assert code == 1 and len(listing["batches"]) == len(listing["problems"]) == 1
    code, _, err = marlnb(capsys, "jobs", "runs/a-batch/jobs/n=1")
    assert code == 2 and "is not a batch" in err
    code, _, err = marlnb(capsys, "jobs", "a.ipynb")
    assert code == 2 and "a.ipynb is a file; give a batch's folder" in err
    code, _, err = marlnb(capsys, "jobs", "runs/a-batch", "--log", "n=7")
    assert code == 2 and "no job 'n=7' of" in err


def test_exit_codes_of_jobs(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    batch.job("n=1").write_status(JobStatus("complete"))
    assert marlnb(capsys, "jobs", "runs/a-batch")[0] == 75
    batch.job("n=2").write_status(JobStatus("complete"))
    assert marlnb(capsys, "jobs", "runs/a-batch")[0] == 0


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_jobs_are_watched_until_all_have_ended(
    batch: Batch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    looks = itertools.count()

    def query(noting: test_submit.Noting, batch: Batch) -> dict[str, JobInfo]:
        if next(looks):  # between the first look and the second it has ended
            noting.answers["n=2"] = JobInfo("ended")
            batch.job("n=2").write_status(JobStatus("complete", attempt=1))
        return noting.answers

    monkeypatch.setattr(test_submit.Noting, "query", query)
    code, out, err = marlnb(capsys, "jobs", "runs/a-batch", "--watch", *form)
    assert code == 1
    if form:
        assert [job["state"] for job in json.loads(out)["jobs"]] == ["complete", "failed", "complete"] and err == ""
    else:
        assert out.endswith("3 jobs: 2 complete, 1 failed\n")
        assert "[3/3] n=2: complete" in err and err.count("job n=1: failed") == 1


def test_watching_ends_when_what_is_left_will_not_run(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    test_submit.Noting.answers["n=2"] = JobInfo("ended", "NODE_FAIL")
    code, out, _ = marlnb(capsys, "jobs", "runs/a-batch", "--watch")
    assert code == 1 and out.endswith("3 jobs: 1 complete, 1 waiting, 1 failed\n") and "NODE_FAIL" in out


def test_cancel_ends_what_has_not_ended(batch: Batch, noting: Notes, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = marlnb(capsys, "cancel", "runs/a-batch")
    assert code == 0 and out == "n=2: will not start\n" and noting == [(["cancel", "n=2"], False)]
    assert "cancelled 1 job: n=2" in (batch.path / "events.log").read_text()
    with RunLock(batch.job("n=2").folder / JOB_LOCK):
        code, out, _ = marlnb(capsys, "cancel", "runs/a-batch", "n=2", "n=0")
    assert out == "n=2: saves and ends\nn=0: is already complete\n"
    assert marlnb(capsys, "cancel", "runs/a-batch", "n=9")[0] == 2
    batch.job("n=2").write_status(JobStatus("stopped"))
    code, out, err = marlnb(capsys, "cancel", "runs/a-batch")
    assert (code, out) == (0, "") and "no job is running or queued" in err


def test_stop_leaves_a_request(batch: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = batch.job("n=2").folder
    code, _, err = marlnb(capsys, "stop", str(folder))
    assert code == 2 and "nothing runs in" in err and "marlnb cancel BATCH JOB" in err
    with RunLock(folder / JOB_LOCK):
        code, _, err = marlnb(capsys, "stop", str(folder))
    assert code == 0 and (folder / "STOP").exists() and "--only n=2" in err
    run = Run.create(tmp_path / "run", Experiment.compose("env=mpe/simple_spread", "algorithm=mappo"))
    assert marlnb(capsys, "stop", str(run.path))[0] == 2
    with RunLock(run.path / "lock"):
        code, _, err = marlnb(capsys, "stop", str(run.path))
    assert code == 0 and (run.path / "STOP").exists() and f"marlnb resume {run.path}" in err
    assert marlnb(capsys, "stop", str(tmp_path))[0] == 2


def test_a_report_that_was_not_run_is_mentioned(noting: Notes, capsys: pytest.CaptureFixture[str]) -> None:
    main(["batch", "a.ipynb", "-p", "n=0..1", "--on", "noting", "--then", "compare"])
    batch = Batch.open("runs/a-batch")
    for job, state in zip(batch.jobs(), ("complete", "failed")):
        job.write_status(JobStatus(state))  # type: ignore[arg-type]
    capsys.readouterr()
    assert end_of_batch(batch, as_json=False, show_failures=False) == 1
    out, err = capsys.readouterr()
    assert out == f"{batch.path}: 1 complete, 1 failed\n" and "compare.ipynb did not run" in err
