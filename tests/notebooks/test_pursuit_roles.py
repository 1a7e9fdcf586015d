"""The tutorial on roles in a pursuit, with few episodes; it asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import nbformat

from marlnb.batch.job.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "pursuit_roles.ipynb"
SMALL = {"episodes": 40, "evaluation_episodes": 40, "n_shuffles": 20, "min_cost": 2.0}


def test_no_roles_but_a_compass_that_is_used(tmp_path: Path) -> None:
    execute(NOTEBOOK, tmp_path / "run", SMALL, progress=False)
    cells = nbformat.read(tmp_path / "run" / "notebook.ipynb", 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    output_text = "".join(output.get("text", "") for output in outputs)
    assert "agents differ permanently: adversary_0, adversary_1, adversary_2 | agent_0" in output_text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
