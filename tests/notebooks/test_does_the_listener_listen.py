"""The tutorial on interventions, with fewer episodes; it asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import nbformat

from marlnb.batch.job.execute import execute
from tests.notebooks.small import SMALL

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "does_the_listener_listen.ipynb"


def test_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    execute(NOTEBOOK, folder, SMALL[NOTEBOOK.stem], progress=False)
    executed = nbformat.read(folder / "notebook.ipynb", 4)
    figures = [o for cell in executed.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(figures) == 5
    assert (folder / "edits" / "mean_message.intervention.json").is_file()
