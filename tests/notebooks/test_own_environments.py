"""The tutorial on environments of one's own, from nothing to its end; it asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.execute import execute
from marlnb.errors import ConfigError
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.run import Run

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "own_environments.ipynb"


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_modules_forgotten")
def test_it_runs_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    execute(NOTEBOOK, folder, progress=False)
    assert (tmp_path / "run-files" / "conf" / "env" / "multiwalker" / "shared.yaml").exists()
    assert Run.open(folder).status()["state"] == "complete"
    with pytest.raises(ConfigError, match=r"cannot import 'corridor'.* in the current folder"):
        evaluate(folder, episodes=1)
    monkeypatch.chdir(tmp_path / "run-files")  # where the module is
    assert evaluate(folder, episodes=1).episodes == 1
    cells = nbformat.read(folder / "notebook.ipynb", 4).cells
    printed = "".join(out.get("text", "") for cell in cells for out in cell.get("outputs", []))
    assert "no option 'kwargs.lenght'; did you mean 'kwargs.length'" in printed
    assert "kwargs.length must be at least 2; got 1" in printed
