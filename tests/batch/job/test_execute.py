"""Notebooks executed into a run folder: the real kernel, the real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from papermill.exceptions import PapermillExecutionError

from marlnb.batch.job.execute import execute, main
from marlnb.batch.job.job import Job
from marlnb.batch.job.training_progress import describe_training
from marlnb.batch.sweep.parameters import parse_parameters
from marlnb.errors import ConfigError, RunError


def notebook(path: Path, *cells: str, **kernelspec: str) -> Path:
    parameters = nbformat.v4.new_code_cell('run = "runs/x"\nn = 1', metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = kernelspec or {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


def test_the_executed_copy_and_its_html_lie_in_the_folder(tmp_path: Path) -> None:
    cell = (
        "from ipykernel.connect import get_connection_info\n"
        "import json\n"
        "print('transport', json.loads(get_connection_info())['transport'])\n"
        "print(run, n * 2)"
    )
    folder = tmp_path / ("long " * 20) / "run"
    out = execute(notebook(tmp_path / "a.ipynb", cell), folder, {"n": 21}, progress=False)
    assert out == folder / "notebook.ipynb"
    text = "".join(output["text"] for output in nbformat.read(out, 4).cells[-1].outputs)
    assert text == f"transport ipc\n{folder} 42\n"
    html = (folder / "notebook.html").read_text(encoding="utf-8")
    assert "transport ipc" in html and "<html" in html
    own = ["attempts.jsonl", "job.json", "job.lock", "job_status.json", "output.log"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*own, "notebook.html", "notebook.ipynb"])
    assert Job.open(folder).status().state == "complete"


def test_a_failing_cell_is_kept_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = notebook(tmp_path / "a.ipynb", "1 / (n - 1)", "print('never')")
    with pytest.raises(PapermillExecutionError, match="division by zero"):
        execute(source, tmp_path / "run", progress=False)
    assert "ZeroDivisionError" in (tmp_path / "run" / "notebook.html").read_text(encoding="utf-8")
    assert main([str(source), "--out", str(tmp_path / "run"), "-p", "n=2"]) == 0  # the same folder is used again


def test_a_notebook_that_names_its_kernel_but_no_language_is_python(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "print(n * 2)", name="python3", display_name="Python 3")
    out = execute(source, tmp_path / "run", {"n": 21}, progress=False)
    assert nbformat.read(out, 4).cells[-1].outputs[0]["text"] == "42\n"


def test_bad_requests_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = notebook(tmp_path / "a.ipynb", "print(1)")
    with pytest.raises(ConfigError, match=r"no parameter 'm' of a\.ipynb"):
        execute(source, tmp_path / "run", {"m": 1})
    with pytest.raises(ConfigError, match="does not exist"):
        execute(tmp_path / "b.ipynb", tmp_path / "run")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"thesis\.tex"):
        execute(source, tmp_path / "data")
    broken = tmp_path / "broken.ipynb"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a notebook of format 4"):
        execute(broken, tmp_path / "run")
    bare = tmp_path / "bare.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), bare)
    with pytest.raises(ConfigError, match=r"bare\.ipynb names no kernel; open it in JupyterLab, choose a kernel"):
        execute(bare, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert main([str(source), "--out", str(tmp_path / "run"), "-p", "n"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def test_parameters_are_json_or_text() -> None:
    asked = ["n=3", "rate=1e-3", "name=abc", "flags=[1, 2]", "on=true", "empty=", "path=a=b", 'quoted="5"']
    assert parse_parameters(asked) == {
        "n": 3,
        "rate": 1e-3,
        "name": "abc",
        "flags": [1, 2],
        "on": True,
        "empty": "",
        "path": "a=b",
        "quoted": "5",
    }


TRAINING = """
import marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=4", "rollout_steps=25", "threads=1",
    "frames=100_000_000", "checkpoint_every=1000")
trained = mnb.train(experiment, run=run, resume=True)
assert trained.status()["state"] == "complete"
"""


def test_an_interrupt_lets_the_training_save(tmp_path: Path) -> None:
    source, folder = notebook(tmp_path / "a.ipynb", TRAINING), tmp_path / "run"
    command = [sys.executable, "-m", "marlnb.batch.job.execute", str(source), "--out", str(folder)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": "default"})
    try:
        deadline = time.monotonic() + 120
        while "training" not in describe_training(folder) or not (folder / "metrics.jsonl").exists():
            assert started.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=120)
    finally:
        started.kill()
    assert started.returncode == 130 and b"the same command continues" in errors
    assert "asked the training to save and stop" in (folder / "output.log").read_text()
    assert (Job.open(folder).status().state, Job.open(folder).status().reason) == ("interrupted", "SIGINT")
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "stopped"
    assert (folder / "checkpoints" / str(status["iteration"])).is_dir()
    assert (folder / "notebook.html").exists()
