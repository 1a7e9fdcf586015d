"""The training cell without a page: a real kernel, run by nbclient as in papermill."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.job.execute import execute
from marlnb.training.runs.run import Run
from tests.widgets.kernels import run_cells

CELLS = (
    "import marlnb as mnb\n"
    "from marlnb.widgets import TrainingPanel\n"
    "experiment = mnb.Experiment.compose('env=mpe/simple_tag', 'algorithm=ippo', 'n_envs=4', 'rollout_steps=25',\n"
    "                                    'frames=1000', 'threads=1', 'algorithm.epochs=1')\n"
    "panel = TrainingPanel(experiment, run)\n"
    "panel",
    "trained = await panel.train()\nassert trained.status()['state'] == 'complete'",
)
PNG = b"\x89PNG\r\n\x1a\n"


def _notebook(run: str) -> Any:
    parameters = nbformat.v4.new_code_cell(f"run = {run!r}", metadata={"tags": ["parameters"]})
    made = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(cell) for cell in CELLS)])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def _check(made: Any, run: Path) -> None:
    """The panel has every iteration and a picture below it; the cell that trains reports all frames."""
    at = [cell.source for cell in made.cells].index(CELLS[0])
    displayed, trained = made.cells[at : at + 2]
    texts = ["".join(output["data"]["text/plain"]) for output in trained.outputs]
    assert len(texts) == 1 and re.search("1.0k(/| of )1.0k frames", texts[0])
    (picture,) = [output["data"]["image/png"] for output in displayed.outputs if "image/png" in output["data"]]
    assert base64.b64decode(picture).startswith(PNG)
    states = made.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    lines = [model["state"]["lines"] for model in states if "returns" in str(model["state"].get("title"))]
    rows = Run.open(run).metrics()
    assert lines
    for panel in lines:
        assert [len(line[0]) for line in (panel["agent"], panel["adversary"])] == [len(rows)] * 2 == [10, 10]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def test_plain_execution_trains_and_leaves_a_picture(folder: Path) -> None:
    """The second panel is not displayed: its picture is below the cell that trains."""
    made = _notebook("run")
    undisplayed = ("panel = TrainingPanel(experiment, run + '_2')\npanel.run", CELLS[1])
    made.cells += [nbformat.v4.new_code_cell(cell) for cell in undisplayed]
    run_cells(made, resources={"metadata": {"path": str(folder)}})
    _check(made, folder / "run")
    assert [output for output in made.cells[3].outputs if "image/png" in output.get("data", {})] == []
    assert "image/png" in made.cells[4].outputs[-1]["data"]


def test_a_job_does_the_same_and_its_html_shows_the_picture(folder: Path) -> None:
    nbformat.write(_notebook("run"), folder / "panel.ipynb")
    out = execute(folder / "panel.ipynb", folder / "job", progress=False)
    _check(nbformat.read(out, 4), folder / "job")
    page = out.with_suffix(".html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
