"""Deleting a run: what uses it prevents that, and what remains is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marlnb.errors import RunError
from marlnb.training.runs.files import JOB_LOCK, LOCK
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run_removal import delete_run
from tests.lab.run_folders import write_run
from tests.training.another_user import shared_folder, without_root


@pytest.mark.parametrize(("lock", "reason"), [(LOCK, "is being trained"), (JOB_LOCK, "a batch job is running in")])
def test_a_run_in_use_is_not_deleted(tmp_path: Path, lock: str, reason: str) -> None:
    run = write_run(tmp_path / "run")
    with RunLock(run / lock), pytest.raises(RunError, match=reason):
        delete_run(run)
    assert (run / "experiment.json").exists()
    delete_run(run)
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_deleted_are_named() -> None:
    with shared_folder() as shared:
        run = write_run(shared / "run")
        (run / "checkpoints" / "1").mkdir(parents=True)
        os.chmod(run / "checkpoints", 0o555)
        with without_root(), pytest.raises(RunError, match=r"its files in .*/\.deleted-.* cannot be deleted"):
            delete_run(run)
        os.chmod(next(shared.glob(".deleted-*/checkpoints")), 0o755)
