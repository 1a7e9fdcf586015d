"""The tutorial on batched environments, with few envs and a short training run."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "batched_environments.ipynb"


@pytest.mark.timeout(600)
def test_a_game_is_written_trained_watched_and_opened(tmp_path: Path) -> None:
    execute(NOTEBOOK, tmp_path / "run", {"n_envs": 8, "frames": 800, "episodes": 12}, progress=False)
    cells = nbformat.read(tmp_path / "run" / "notebook.ipynb", 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    texts = "".join(output.get("text", "") for output in outputs)
    assert "decides by a tensor's value in Python" in texts
    shown = [output["data"] for output in outputs if "data" in output]
    assert any("image/png" in data for data in shown) and any("<" in data.get("text/html", "") for data in shown)
