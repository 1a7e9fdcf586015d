"""Offline runs of Weights & Biases: written by wandb itself, uploaded by it to a server on this machine.

Weights & Biases' own servers have not been asked.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from marlnb.batch.wandb_sync import find_offline_runs, upload
from marlnb.cli import main
from marlnb.errors import BatchError
from marlnb.training.reporting.loggers import wandb_id
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from tests.batch.wandb_server import serving
from tests.training.reporting.test_loggers import FailsAfter
from tests.training.toys import count_experiment

pytest.importorskip("wandb")


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A training run in two attempts, both offline, in a batch's folder. The first fails, and is trained again."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "sweep" / "jobs" / "algorithm=x,seed=0"
    with pytest.raises(RuntimeError, match="after 64 frames"):
        train(count_experiment("loggers=[wandb]", "frames=128"), folder, progress=False, callbacks=[FailsAfter(64)])
    time.sleep(1)  # wandb names the folder of an attempt by the second
    monkeypatch.setenv("WANDB_MODE", "offline")  # as in the resumed job, a process of its own
    return resume(folder, progress=False)


def _log_in(monkeypatch: pytest.MonkeyPatch, home: Path, url: str, key: str | None) -> None:
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WANDB_BASE_URL", url)
    monkeypatch.setenv("WANDB_MODE", "offline")  # a login shell may have it: it must not keep this from uploading
    monkeypatch.setenv("WANDB_API_KEY", key) if key else monkeypatch.delenv("WANDB_API_KEY", raising=False)


def test_two_attempts_become_one_run_with_one_history(
    attempts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    runs = find_offline_runs([tmp_path / "sweep", attempts.path])
    assert [each.run for each in runs] == [attempts.path] * 2 and runs[0].started < runs[1].started
    assert {each.id for each in runs} == {wandb_id(attempts.path)}

    assert main(["sync", str(tmp_path), "--dry-run", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [row["state"] for row in listed] == ["to upload"] * 2

    with serving() as server:
        _log_in(monkeypatch, tmp_path / "home", server.url, None)
        with pytest.raises(BatchError, match=r"API key.*wandb login"):
            upload(runs)
        _log_in(monkeypatch, tmp_path / "home", server.url, "a" * 40)
        assert main(["sync", str(tmp_path), "--json"]) == 0
        assert [row["state"] for row in json.loads(capsys.readouterr().out)["runs"]] == ["uploaded now"] * 2
        (history,) = server.history.values()
        assert main(["sync", str(tmp_path)]) == 0
        assert "uploaded before" in capsys.readouterr().out
    entropies = [row["learning/a/entropy"] for row in history if "learning/a/entropy" in row]
    assert entropies == pytest.approx(attempts.metrics()["learning/a/entropy"].tolist())
    steps = [row["_step"] for row in history]
    assert steps == sorted(set(steps))  # the second attempt's follow the first's
    assert list(here.iterdir()) == []  # wandb's own logs lie with the runs


def test_a_run_that_is_being_trained_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wandb" / "offline-run-20250101_000000-a").mkdir(parents=True)
    (tmp_path / "wandb" / "offline-run-20250101_000000-a" / "run-a.wandb").touch()
    with RunLock(tmp_path / "lock"):
        assert main(["sync", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("still being written") == 1


def test_missing_runs_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sync", str(tmp_path / "x")]) == 2
    assert "x does not exist" in capsys.readouterr().err
    (tmp_path / "a.ipynb").touch()
    assert main(["sync", str(tmp_path / "a.ipynb")]) == 2
    assert "a.ipynb is a file; give the folder of a run" in capsys.readouterr().err
    assert main(["sync", str(tmp_path)]) == 0
    assert "no offline runs" in capsys.readouterr().out


def test_runs_in_a_folder_that_is_called_wandb(tmp_path: Path) -> None:
    folders = [
        tmp_path / "wandb" / "offline-run-20250101_000000-a",
        tmp_path / "wandb" / "jobs" / "seed=0" / "wandb" / "offline-run-20250101_000000-b",
    ]
    for folder in folders:
        (folder / "files" / "wandb" / "offline-run-20250101_000000-c").mkdir(parents=True)
        for place in (folder, folder / "files" / "wandb" / "offline-run-20250101_000000-c"):
            (place / "run.wandb").touch()
    for top in (tmp_path, tmp_path / "wandb"):
        assert {run.folder for run in find_offline_runs([top])} == {*folders}


def test_ids_are_a_runs_own_and_those_of_older_runs_stay(tmp_path: Path) -> None:
    first, second, older = (tmp_path / name / "same" for name in "abc")
    for folder in (first, second, older):
        folder.mkdir(parents=True)
    assert wandb_id(first) != wandb_id(second)
    assert wandb_id(first) == wandb_id(first)
    (older / "wandb" / "run-20250101_000000-same").mkdir(parents=True)
    assert wandb_id(older) == "same"
