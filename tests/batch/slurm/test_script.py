"""The sbatch script: what it says is compared with files, and bash and sbatch's own rules read it as meant."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.offline import OFFLINE_VARIABLES
from marlnb.batch.profile import Profile, find_profile, with_changes
from marlnb.batch.slurm.script import Part, array_script, exports, job_name, parts, report_script
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError

GOLDENS = Path(__file__).parent / "goldens"
PYTHON = "/shared/ada/env/bin/python"
HOSTILE = 'a\'; touch pwned; echo "$(touch pwned)" `touch pwned`\n%j #SBATCH --wrap'


@pytest.fixture(autouse=True)
def _a_plain_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [name for name in os.environ if name.startswith("MARLNB_")]  # a script passes those of its shell on
    for name in ("PYTHONPATH", *own, *OFFLINE_VARIABLES):
        monkeypatch.delenv(name, raising=False)


def batch_of(path: str, profile: Profile, count: int = 20) -> Batch:
    sweep = Sweep({"seed": tuple(range(count))}, {"text": HOSTILE})
    return Batch(Path(path), "quickstart.ipynb", sweep, profile, Path("/shared/ada"), then="compare.ipynb")


def scripts(batch: Batch) -> dict[str, str]:
    submission = batch.path / "submissions" / "1"
    part = Part(1, 0, len(batch.sweep))
    return {
        "": array_script(batch, batch.profile, submission, part, 1),
        "-report": report_script(batch, batch.profile, submission, ["4711"]),
    }


CASES = {
    "slurm": (find_profile("slurm"), "/shared/ada/runs/sweep"),
    "slurm-gpu": (find_profile("slurm-gpu"), "/shared/ada/runs/sweep"),
    "jean-zay": (with_changes(find_profile("jean-zay"), {"account": "abc@v100"}), "/lustre/shared/abc/ada/sweep"),
    "everything": (
        Profile(
            executor="slurm",
            at_once=4,
            cores=3,
            memory_gb=3.5,
            time_limit="1-02:03:04",
            partition="gpu,long",
            account="ada",
            qos="high",
            constraint="a100&nvlink",
            gres="gpu:a100:2,lscratch:10",
            options=("--exclusive", "--mail-type=END"),
            modules=("cuda/12.4", "python 3"),
            setup=('source "$HOME/env/bin/activate"', "ulimit -c 0"),
            environment={"WANDB_MODE": "disabled", "NOTE": HOSTILE},
            warn_s=90,
        ),
        '/shared/it\'s a $(touch pwned) "batch" ünï %j #;&',
    ),
    "least": (Profile(executor="slurm", warn_s=0, offline=False), "/shared/ada/runs/sweep"),
}


@pytest.mark.parametrize("case", CASES)
def test_scripts_are_those_on_file(case: str) -> None:
    profile, path = CASES[case]
    for suffix, text in scripts(batch_of(path, with_changes(profile, {"python": PYTHON}))).items():
        golden = GOLDENS / f"{case}{suffix}.sbatch"
        assert text == golden.read_text(encoding="utf-8"), f"if the new script is right, keep it in {golden}"


@pytest.mark.parametrize("case", CASES)
def test_bash_can_read_every_script(case: str) -> None:
    for golden in GOLDENS.glob(f"{case}*.sbatch"):
        subprocess.run(["bash", "-n", golden], check=True, timeout=60)
        assert golden.read_text(encoding="utf-8").splitlines()[-1].startswith("exec ")


def test_no_parameter_is_in_a_script() -> None:
    profile, path = CASES["slurm"]
    for text in scripts(batch_of(path, profile)).values():
        assert "touch" not in text and "seed" not in text


def test_what_is_executed_gets_paths_and_variables_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a $(touch pwned) "batch" %j `touch pwned` #;&'
    folder.mkdir()
    python = folder / "python"
    python.write_text('#!/bin/bash\nprintf "%s\\0" "$NOTE" "$OMP_NUM_THREADS" "$@"\n')
    python.chmod(0o700)
    profile = Profile(executor="slurm", cores=3, python=str(python), environment={"NOTE": HOSTILE})
    batch = batch_of(str(folder / "sweep"), profile)
    submission = batch.path / "submissions" / "1"
    for part, index in ((Part(1, 0, 20), "7"), (Part(2, 1000, 20), "1007")):
        script = tmp_path / "script.sbatch"
        script.write_text(array_script(batch, profile, submission, part, 2))
        environment = {"PATH": "/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "7"}
        done = subprocess.run(
            ["bash", script], cwd=tmp_path, env=environment, capture_output=True, check=True, timeout=60
        )
        words = ["-m", "marlnb.batch.job.run_job", "--submission", str(submission), "--index", index]
        assert done.stdout.decode().split("\0")[:-1] == [HOSTILE, "3", *words]
    assert sorted(entry.name for entry in tmp_path.rglob("*pwned*")) == [folder.name]


def test_setup_that_fails_ends_the_job_before_python(tmp_path: Path) -> None:
    profile = Profile(executor="slurm", python="/bin/true", setup=("false",))
    script = tmp_path / "script.sbatch"
    script.write_text(array_script(batch_of("/x", profile), profile, Path("/x/1"), Part(1, 0, 1), 1))
    assert subprocess.run(["bash", script], timeout=60, check=False).returncode == 1


def test_a_sweep_too_long_for_one_array_is_cut() -> None:
    assert parts(0, 1001) == []
    assert parts(1001, 1001) == [Part(1, 0, 1001)]
    assert parts(2500, 1000) == [Part(1, 0, 1000), Part(2, 1000, 1000), Part(3, 2000, 500)]
    assert [part.log("%a") for part in parts(2, 1)] == ["%a.log", "2-%a.log"]
    batch = batch_of("/shared/sweep", Profile(executor="slurm", at_once=5), 2500)
    text = array_script(
        batch, batch.profile, Path("/shared/sweep/submissions/1"), parts(2500, 1000)[2], 3, after="4712"
    )
    assert "#SBATCH --array=0-499%5\n" in text and "#SBATCH --dependency=afterany:4712\n" in text
    assert '--index "$((2000 + SLURM_ARRAY_TASK_ID))"' in text and "Jobs 2000 to 2499" in text


def test_only_marlnbs_own_variables_and_pythons_path_come_from_the_shell() -> None:
    shell = {
        "MARLNB_CONFIG_DIR": "conf",
        "MARLNB_JOB": "/x",
        "MARLNB_TOKEN": "s",
        "MARLNB_ENDS_AT": "1800000000",
        "PYTHONPATH": "src",
        "SECRET_KEY": "s",
        "HF_HUB_OFFLINE": "0",
    }
    exported = exports(Profile(offline=False), shell)
    assert {key: value for key, value in exported.items() if not key.endswith("_THREADS")} == {
        "MARLNB_CONFIG_DIR": "conf",
        "PYTHONPATH": "src",
        "HF_HUB_OFFLINE": "0",
    }
    assert exports(Profile(environment={"OMP_NUM_THREADS": "9"}), {})["OMP_NUM_THREADS"] == "9"


def test_job_names_are_plain() -> None:
    batch = batch_of("/shared/it's ünï " + "x" * 80, Profile())
    assert re.fullmatch(r"marlnb-it_s_n_x{33}", job_name(batch))


@pytest.mark.parametrize("path", ["/shared/new\nline", "/shared/back\\slash", "/shared/tab\t", "/shared/\udcff"])
def test_paths_that_sbatch_cannot_take_are_refused(path: str) -> None:
    batch = batch_of(path, Profile(executor="slurm"))
    with pytest.raises(BatchError, match="give --out another folder"):
        scripts(batch)
