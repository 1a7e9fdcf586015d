"""Jobs are told that there is no internet, and what the user said otherwise stands."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from marlnb.batch.folder import Batch
from marlnb.batch.job import Job
from marlnb.batch.offline import OFFLINE_VARIABLES, job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.sweep import Sweep


@pytest.fixture(autouse=True)
def _a_shell_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_profile_and_the_shell_stand_before_the_offline_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_environment(Profile()) == dict(OFFLINE_VARIABLES)
    assert job_environment(Profile(offline=False, environment={"A": "b"})) == {"A": "b"}
    assert job_environment(Profile(environment={"WANDB_MODE": "disabled"}))["WANDB_MODE"] == "disabled"
    monkeypatch.setenv("WANDB_MODE", "online")
    found = job_environment(Profile())
    assert "WANDB_MODE" not in found and found["HF_HUB_OFFLINE"] == "1"


def test_job_files_carry_them(tmp_path: Path) -> None:
    source = tmp_path / "a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), source)
    batch = Batch.create(tmp_path / "batch", source, Sweep({}, {}), Profile(), then=source)
    assert Job.open(batch.jobs()[0].folder).environment["WANDB_MODE"] == "offline"
    assert batch.report_job().environment["UV_OFFLINE"] == "1"
