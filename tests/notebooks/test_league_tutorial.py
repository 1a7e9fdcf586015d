"""The tutorial on leagues, with a short run: every figure is drawn, and an exploiter opens in the microscope."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "league.ipynb"


@pytest.mark.timeout(600)
def test_it_ends_with_an_exploiter_in_the_microscope(tmp_path: Path) -> None:
    execute(NOTEBOOK, tmp_path / "run", {"frames": 3072, "episodes": 4}, progress=False)
    cells = nbformat.read(tmp_path / "run" / "notebook.ipynb", 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 7
    assert any("held-out games" in output.get("text", "") for output in outputs)  # what the main agent does wrong
    texts = [output["data"]["text/plain"] for output in outputs if "text/plain" in output.get("data", {})]
    assert texts[0].startswith("League alphastar") and "Microscope(player_1.h5" in texts[-1]
