"""What the scheduler is asked. A real SLURM is asked in `make cluster-test`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from marlnb.batch.doctor.check import examine
from marlnb.batch.doctor.node import from_json, node_script, to_json
from marlnb.batch.doctor.scheduler import never_starting
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from tests.batch.doctor.notebooks import subject

PARTITIONS = "debug*|1:00:00|up\nlong|7-00:00:00|up\nold|infinite|down\n"


def test_a_job_that_slurm_takes_and_never_begins() -> None:
    def problems(**keys: str) -> list[str]:
        return [text for _, text, _ in never_starting(Profile(executor="slurm", **keys), PARTITIONS)]  # type: ignore[arg-type]

    assert problems(time_limit="01:00:00") == []
    assert "more than partition debug allows, 1:00:00" in problems(time_limit="02:00:00")[0]
    assert problems(time_limit="02:00:00", partition="long") == []
    assert "partition old is down" in problems(partition="old")[0]


def test_the_job_on_the_node_has_the_batchs_own_preparations(tmp_path: Path) -> None:
    folder = tmp_path / "it's $(here) 50%j"
    folder.mkdir()
    profile = Profile(executor="slurm", partition="long", modules=("cuda/12",), setup=("echo 'ready'",), gpus=1)
    script = node_script(subject(tmp_path, profile=profile), folder)
    assert "#SBATCH --partition=long" in script and "--gres=gpu:1" in script
    assert "module load cuda/12\necho 'ready'\n" in script
    assert f'--output="{tmp_path}/it\'s $(here) 50%%j/doctor.log"' in script
    assert "--array" not in script and "--requeue" not in script and script.count("--time=") == 1
    (tmp_path / "script").write_text(script)
    assert subprocess.run(["bash", "-n", tmp_path / "script"], check=False).returncode == 0
    words = subprocess.run(
        ["bash", "-c", script.splitlines()[-1].replace("exec ", "printf '%s\\n' ", 1)], capture_output=True, text=True
    ).stdout.splitlines()
    assert words[1:] == ["-m", "marlnb.batch.doctor", str(folder)]


def test_a_subject_travels_as_json(tmp_path: Path) -> None:
    asked = subject(tmp_path, profile=Profile(setup=("a",)), sweep=Sweep({"seed": (0, 1)}, {"x": "'; echo"}))
    assert to_json(from_json(to_json(asked))) == to_json(asked)
    assert from_json(to_json(asked)).sweep == asked.sweep


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marlnb.batch.doctor.check import checks

    monkeypatch.setenv("PATH", str(tmp_path))
    only = {"executor": checks()["executor"]}
    monkeypatch.setattr("marlnb.batch.doctor.check.checks", lambda: only)
    (finding,) = examine(subject(tmp_path, profile=Profile(executor="slurm")))
    assert finding.level == "fail" and "sbatch was not found on this machine" in finding.finding
