"""The tutorial on decoding, with fewer episodes and checkpoints; it asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import nbformat

from marlnb.batch.job.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "who_knows_what_when.ipynb"
SMALL = {"checkpoints": [10, 130], "episodes": 50, "n_shuffles": 1, "n_runs": 3}


def test_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    execute(NOTEBOOK, folder, SMALL, progress=False)
    executed = nbformat.read(folder / "notebook.ipynb", 4)
    figures = [o for cell in executed.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(figures) == 5
    output_text = "".join(o.get("text", "") for cell in executed.cells for o in cell.get("outputs", []))
    conclusion = "too few shuffles"  # one shuffle decides nothing
    assert f": {conclusion}\n2 of 2 scores: {conclusion}; the best: goal_to_the_right" in output_text
