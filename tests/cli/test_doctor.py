"""`marlnb doctor`: a notebook that is well, one that is not, and bad requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from marlnb.cli import main
from tests.batch.doctor.notebooks import write


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_notebook_that_is_well_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "a.ipynb", "import numpy", parameters='run = "runs/x"\nseed = 0')
    assert main(["doctor", str(source), "-p", "seed=0..4"]) == 0
    output = capsys.readouterr().out
    assert "ok    notebook: a.ipynb: 2 code cells, 2 parameters, 5 jobs" in output and "0 would fail" in output
    assert not (tmp_path / "runs").exists()  # nothing was made


def test_a_batch_that_would_fail_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "a.ipynb", "input('who?')\nmnb.Run.open('runs/none')", kernel="gone")
    batch = Batch.create(tmp_path / "batch", source, Sweep({}, {}), Profile())
    assert main(["doctor", "--batch", str(batch.path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    failing = {row["name"] for row in report["findings"] if row["level"] == "fail"}
    assert failing == {"kernel", "interaction", "data and weights"} and report["fails"] == 3
    assert all(row["remedy"] for row in report["findings"] if row["level"] == "fail")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a.ipynb", "-p", "sed=1"], "did you mean 'seed'"),
        (["b.ipynb"], "b.ipynb"),
        (["--on", "no-such-profile"], "no profile 'no-such-profile'"),
        (["--run", "runs/none"], "is not a run"),
        (["--batch", "a.ipynb"], "is not a batch"),
        (["-p", "seed=1"], "-p needs a notebook"),
        (["a.ipynb", "--set", "cores"], "--set: expected NAME=VALUE; got 'cores'"),
        (["a.ipynb", "--set", "cores=1", "--set", "cores=2"], "--set cores= is given twice\n"),
    ],
)
def test_bad_requests_end_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    write(tmp_path / "a.ipynb", parameters="seed = 0")
    assert main(["doctor", *words]) == 2
    assert complaint in capsys.readouterr().err
