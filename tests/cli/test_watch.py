"""`marlnb watch`: what it prints, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from marlnb.batch.executor import executor_of
from marlnb.batch.job.job import JobStatus
from marlnb.cli import main
from tests.batch.batches import Maker, submit, wait_until
from tests.batch.batches import make as make

COMPLETE = 'echo \'{"state": "complete", "attempt": 1}\' > job_status.json; exit 0'


def test_the_exit_code_tells_how_the_batch_ended(make: Maker, capfd: pytest.CaptureFixture[str]) -> None:
    batch = make("", n=(0, 1), python=make.script(COMPLETE))
    for states, code in (("complete complete", 0), ("complete failed", 1), ("complete stopped", 130)):
        for job, state in zip(batch.jobs(), states.split()):
            job.write_status(JobStatus(state))  # type: ignore[arg-type]
        assert main(["watch", str(batch.path), "--json", "--quiet"]) == code
        report = json.loads(capfd.readouterr().out)
        assert list(report["jobs"].values()) == states.split()
    batch.create_submission(batch.jobs(), then=False)
    batch.job("n=1").write_status(JobStatus("interrupted"))
    assert main(["watch", str(batch.path), "--poll", "0.1", "--no-resubmit"]) == 1  # it is never restarted
    assert len(batch.submissions()) == 1
    assert main(["watch", str(batch.path), "--poll", "0.1", "--once"]) == 0
    assert len(batch.submissions()) == 2
    assert main(["watch", str(batch.path), "--poll", "0.1"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == f"{batch.path}: 2 complete"


def test_an_interrupt_ends_the_watching_alone(make: Maker) -> None:
    batch = make("", python=make.script("touch ready; exec sleep 100"))
    submit(batch)
    words = [sys.executable, "-c", "import sys; from marlnb.cli import main; sys.exit(main())"]
    watching = subprocess.Popen([*words, "watch", batch.path], stderr=subprocess.PIPE, text=True)
    wait_until((batch.job("n=0").folder / "ready").exists)
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith("0/1 complete")
    watching.send_signal(signal.SIGTERM)
    _, errors = watching.communicate(timeout=100)
    assert watching.returncode == 130
    assert f"to watch again: marlnb watch {batch.path}" in errors and "Traceback" not in errors
    assert executor_of(batch).query(batch)["n=0"].state == "running"


def test_what_is_no_batch_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Maker) -> None:
    assert main(["watch", str(tmp_path / "none")]) == 2
    assert "is not a batch" in capsys.readouterr().err
    for wrong in ("0", "inf", "nan", "1e300"):
        assert main(["watch", str(make("").path), "--poll", wrong]) == 2
        assert f"--poll must be above 0 and at most 86,400 s; got {float(wrong):g}" in capsys.readouterr().err
