"""A dry run finds what no Experiment accepts, without loading torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.experiment_check.check import check_experiments
from marlnb.batch.sweep.grammar import make_sweep, values_of_python
from marlnb.cli import main
from marlnb.errors import ConfigError

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
PARAMETERS = 'run = "runs/x"\nalgorithm = "mappo"\nmodel = "mlp"\nseed = 0\noption = "n_envs=4"'
COMPOSE = """\
%matplotlib inline
import marlnb as mnb

experiment = mnb.Experiment.compose(
    "env=mpe/simple_spread", f"algorithm={algorithm}", f"model={model}", option, f"seed={seed}"
)
trained = mnb.train(experiment, run=run)
"""


def notebook(path: Path, *cells: str) -> Path:
    parameters = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    made = nbformat.v4.new_notebook(cells=[parameters, *map(nbformat.v4.new_code_cell, cells)], metadata=kernel)
    nbformat.write(made, path)
    return path


def notes(source: Path, *, cwd: Path | None = None, **values: Any) -> list[str]:
    return check_experiments(source, make_sweep(source, values_of_python(values)), cwd or Path.cwd())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algorithm": ["ippo", "mapo"]}, "job algorithm=mapo, cell 2: no algorithm 'mapo'; did you mean 'mappo'"),
        ({"option": "n_envs=0"}, "cell 2: n_envs must be at least 1; got 0"),
        ({"option": "algorithm.lrr=1"}, "no option 'algorithm.lrr' of algorithm 'mappo'; did you mean"),
        ({"option": "algorithm.sequence_length=8"}, "sequence_length=8 has no effect: mlp has no state"),
        (
            {"option": "rollout_steps=20", "model": "gru"},
            "sequence_length=16 must divide rollout_steps=20",
        ),
        ({"algorithm": "masac", "model": "gru"}, "masac: it learns feed-forward networks; got gru"),
        ({"algorithm": "qmix", "option": "frames=2000"}, "qmix for every group would learn nothing"),
        ({"option": "target_group=prey"}, "no group 'prey' of mpe/simple_spread"),
    ],
)
def test_what_no_experiment_accepts(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        notes(notebook(tmp_path / "a.ipynb", COMPOSE), **values)
    assert message in str(error.value) and "job only" not in str(error.value)


def test_the_values_of_an_earlier_execution_are_replaced(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", COMPOSE)
    executed = nbformat.read(source, 4)
    earlier = nbformat.v4.new_code_cell('algorithm = "ippo"', metadata={"tags": ["injected-parameters"]})
    executed.cells.insert(1, earlier)  # as papermill writes it
    nbformat.write(executed, source)
    with pytest.raises(ConfigError, match="cell 3: no algorithm 'mapo'"):
        notes(source, algorithm="mapo")


def test_parts_that_do_not_fit_are_an_error_also_with_the_notebooks_own_parameters(tmp_path: Path) -> None:
    """All of their names are known, so nothing that the notebook defines can change it."""
    source = notebook(tmp_path / "a.ipynb", COMPOSE.replace("option,", '"algorithm.learning_starts=9_000_000",'))
    with pytest.raises(ConfigError, match="cell 2: qmix for every group would learn nothing"):
        notes(source, algorithm="qmix")
    short = notebook(tmp_path / "b.ipynb", COMPOSE.replace("option,", '"frames=2000",').replace("{algorithm}", "qmix"))
    with pytest.raises(ConfigError, match="cell 2: qmix for every group would learn nothing"):
        notes(short, seed=3)


def test_the_variants_of_the_notebooks_own_folder_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in (("one", "fast"), ("two", "slow")):
        variant = tmp_path / folder / "algorithm" / f"{name}.yaml"
        variant.parent.mkdir(parents=True)
        variant.write_text("defaults: [mappo]\nlr: 0.01\n")
    source = notebook(tmp_path / "a.ipynb", COMPOSE.replace('seed={seed}"', 'seed={seed}", config_dir="one"'))
    assert notes(source, algorithm=["mappo", "fast"]) == []
    with pytest.raises(ConfigError, match="job algorithm=slow, cell 2: no algorithm 'slow'"):
        notes(source, algorithm=["fast", "slow"])
    unknown = notebook(tmp_path / "b.ipynb", COMPOSE.replace('seed={seed}"', 'seed={seed}", config_dir=Path("one")'))
    assert notes(unknown, algorithm="fast") == [
        "cell 2: its experiment depends on results, so only the job can check it"
    ]


@pytest.mark.parametrize("choice", ['import os\nos.environ["MARLNB_CONFIG_DIR"] = "one"', "%env MARLNB_CONFIG_DIR=one"])
def test_names_are_only_noted_where_the_notebook_chooses_the_folder_of_variants(tmp_path: Path, choice: str) -> None:
    source = notebook(tmp_path / "a.ipynb", choice, COMPOSE)
    (note,) = notes(source, algorithm=["mappo", "fast"])
    assert note.startswith("cell 3 could not be checked: no algorithm 'fast'")
    with pytest.raises(ConfigError, match="n_envs must be at least 1"):
        notes(source, option="n_envs=0")


def test_what_is_changed_before_it_is_trained_is_no_error(tmp_path: Path) -> None:
    composed = 'base = mnb.Experiment.compose("env=mpe/simple_spread", f"algorithm={algorithm}", "frames=1000")'
    changes = "import marlnb as mnb\nfrom dataclasses import replace\n"
    changed = notebook(tmp_path / "a.ipynb", f"{changes}{composed}", "mnb.train(replace(base, frames=9000), run)")
    for algorithm in ("iql", ["iql", "mappo"]):
        (note,) = notes(changed, algorithm=algorithm)
        assert note.startswith(
            "cell 2: its experiment cannot be trained as it is composed: iql for every group would learn nothing"
        )
    same = notebook(tmp_path / "b.ipynb", f"{changes}{composed}", "mnb.train(base, run)")
    with pytest.raises(ConfigError, match=r"^job algorithm=iql, cell 3: iql for every group would learn nothing"):
        notes(same, algorithm=["iql", "mappo"])


def test_what_is_right_or_unknown_passes(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", COMPOSE)
    assert notes(source, algorithm=["ippo", "qmix"], seed=range(300)) == []
    assert notes(source, model=["mlp", "gru"], option="algorithm.sequence_length=8") == [
        "cell 2: algorithm.sequence_length=8 has no effect: mlp has no state; choose a recurrent network, such as "
        "model=gru (in 1 job)"
    ]
    own = notebook(tmp_path / "b.ipynb", "make_a_variant()", COMPOSE.replace("mpe/simple_spread", "mine/variant"))
    (note,) = notes(own, algorithm="mapo")  # it is wrong, but so is the notebook itself as it is
    assert note.startswith("cell 3 could not be checked: no algorithm 'mapo'")
    depends = notebook(tmp_path / "c.ipynb", 'env = found()\nmnb.Experiment.compose(f"env={env}")')
    assert notes(depends) == ["cell 2: its experiment depends on results, so only the job can check it"]
    assert notes(notebook(tmp_path / "d.ipynb", "print(1)")) == []


def test_variants_belong_to_the_working_folder_of_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = tmp_path / "project" / "conf" / "algorithm"
    variants.mkdir(parents=True)
    (variants / "fast.yaml").write_text("defaults: [mappo]\nlr: 0.01\n")
    (tmp_path / "elsewhere").mkdir()
    source = notebook(tmp_path / "a.ipynb", COMPOSE)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert notes(source, cwd=tmp_path / "project", algorithm=["mappo", "fast"]) == []
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(ConfigError, match="no algorithm 'fast'"):
        notes(source, cwd=tmp_path / "elsewhere", algorithm="fast")
    assert Path.cwd() == tmp_path / "project"
    (note,) = notes(source, cwd=tmp_path / "deleted")
    assert note.startswith("the experiments were not checked")


def test_a_dry_run_where_slurm_belongs_to_no_cluster_shows_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sbatch = tmp_path / "sbatch"
    message = "sbatch: error: fetch_config: DNS SRV lookup failed\\nCould not establish a configuration source"
    sbatch.write_text(f"#!/bin/sh\nprintf '{message}' >&2\nexit 1\n")
    sbatch.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    source = str(notebook(tmp_path / "a.ipynb", COMPOSE))
    words = ["batch", source, "-p", "seed=0..1", "--on", "slurm"]
    assert main([*words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "this machine has no slurm: sbatch --version failed" in out and "#SBATCH --array=0-1" in out
    assert main([*words, "--yes"]) == 2 and "scontrol ping" in capsys.readouterr().err


def test_a_dry_run_without_a_scheduler_shows_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch
    source = str(notebook(tmp_path / "a.ipynb", COMPOSE))
    words = ["batch", source, "-p", "seed=0..1", "--on", "slurm"]
    assert main([*words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "note     this machine has no slurm: sbatch was not found" in out and "#SBATCH --array=0-1" in out
    assert main([*words, "--yes"]) == 2 and "sbatch was not found" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert main([*words, "--dry-run", "-p", "algorithm=mapo"]) == 2
    assert "no algorithm 'mapo'" in capsys.readouterr().err


def test_the_command_gives_the_same_answers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "marlnb", "batch", str(NOTEBOOKS / "choose_and_compare.ipynb"), "--dry-run"]
    wrong = subprocess.run([*command, "-p", 'algorithms=["iql","mapo"]'], cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 2 and "no algorithm 'mapo'" in wrong.stderr
    right = subprocess.run([*command, "-p", 'algorithms=["iql"]'], cwd=tmp_path, capture_output=True, text=True)
    assert right.returncode == 0 and "checked" not in right.stdout, right.stdout + right.stderr


def test_what_the_notebook_itself_defines_or_expects_is_no_error(tmp_path: Path) -> None:
    own = '@mnb.algorithm("mine")\nclass Mine: ...'
    fails = COMPOSE + '\nwith ignored:\n    mnb.Experiment.compose("env=mpe/simple_spread", "algorithm=nope")'
    source = notebook(tmp_path / "a.ipynb", own, fails)
    checked = notes(source, algorithm=["ippo", "mine"])
    assert [note.partition(";")[0] for note in checked if "no algorithm" in note] == [
        "cell 3 could not be checked: no algorithm 'nope'",
        "cell 3 could not be checked: no algorithm 'mine'",
    ]
    with pytest.raises(ConfigError, match="no algorithm 'theirs'"):
        notes(source, algorithm="theirs")
    computed = notebook(tmp_path / "b.ipynb", own.replace('"mine"', '"my" + "own"'), COMPOSE)
    (note,) = notes(computed, algorithm="theirs")
    assert note.startswith("cell 3 could not be checked: no algorithm 'theirs'")
    tagged = nbformat.read(source, 4)
    tagged.cells[2].metadata["tags"] = ["raises-exception"]
    nbformat.write(tagged, source)
    assert notes(source, algorithm="theirs") == []
