"""The tutorial on evolution, with a short run: every figure is drawn, and the winner opens in the microscope."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "evolution.ipynb"


@pytest.mark.timeout(600)
def test_it_ends_with_the_winner_in_the_microscope(tmp_path: Path) -> None:
    small = {"frames": 4800, "generation_frames": 400, "episodes": 12, "n_seeds": 1}
    execute(NOTEBOOK, tmp_path / "run", small, progress=False)
    cells = nbformat.read(tmp_path / "run" / "notebook.ipynb", 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    texts = [output["data"]["text/plain"] for output in outputs if "text/plain" in output.get("data", {})]
    assert texts[0].startswith("<population of") and "Microscope(recording.h5" in texts[-1]
    assert any(text.startswith("At agent_0 agent/actor/hidden_2") for text in texts)
    assert any("schedule of the fittest" in output.get("text", "") for output in outputs)
