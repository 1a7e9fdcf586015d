"""The tutorial on leagues, with a short run: every figure is drawn, and an exploiter opens in the microscope."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

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
    microscope = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})][-1]
    pixels = np.asarray(Image.open(BytesIO(b64decode(microscope))).convert("RGB")).astype(int)
    board = pixels[: len(pixels) // 2, : pixels.shape[1] // 3]
    assert (board[..., 0] - board[..., 2]).max() > 100  # brown, where a microscope without a picture has greys
