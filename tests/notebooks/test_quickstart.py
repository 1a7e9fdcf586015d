"""The quickstart: stripped, with one cell of parameters, and running to its end with small ones."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from marlnb.analysis.attribution.result import Attribution
from marlnb.batch.job.execute import execute
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.notebooks.small import SMALL

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stripped_and_has_one_cell_of_parameters(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    assert any("assert" in cell.source or "claim(" in cell.source for cell in code)


def to_the_recording(source: Path, folder: Path) -> Path:
    """A copy of the notebook that ends with the cell that records."""
    notebook = nbformat.read(source, 4)
    (last,) = (place for place, cell in enumerate(notebook.cells) if "recording = mnb.record(" in cell.source)
    notebook.cells = notebook.cells[: last + 1]
    nbformat.write(notebook, folder / source.name)
    return folder / source.name


def test_the_quickstart_runs_and_continues_from_what_is_there(tmp_path: Path) -> None:
    quickstart = next(path for path in NOTEBOOKS if path.stem == "quickstart")
    folder = tmp_path / "run"
    execute(quickstart, folder, SMALL["quickstart"], progress=False)
    run = Run.open(folder)
    assert run.status()["state"] == "complete" and run.checkpoints
    written = run.recordings["recording"].stat().st_mtime_ns
    with Recording.open(run.recordings["recording"]) as recording:
        assert recording.complete and len(recording.episodes) == 24
        assert {"goal", "goal_dx"} <= set(recording.labels)
    saved = list((folder / "recordings" / "recording.attributions").glob("*.h5"))
    assert [Attribution.load(path).values.shape for path in saved] == [(24 * 25, 1, 11)]
    executed = nbformat.read(folder / "notebook.ipynb", 4)
    figures = [o for cell in executed.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(figures) >= 8
    printed = "".join(out.get("text", "") for cell in executed.cells for out in cell.get("outputs", []))
    assert "not claimed with seed=1 (needs 0), frames=3200 (needs 3,000,000)" in printed
    assert ": a return of -9.0: -" in printed
    assert "image/png" in (folder / "notebook.html").read_text(encoding="utf-8")
    execute(to_the_recording(quickstart, tmp_path), folder, SMALL["quickstart"], progress=False)
    assert run.recordings["recording"].stat().st_mtime_ns == written  # trained and recorded once
    assert len(run.metrics()) == 3200 // run.experiment.iteration_frames == 16
