"""The page on environments in processes of their own: its files are written, its code is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marlnb.training.runs.run import Run

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "environments-external.md"
BLOCK = re.compile(r"<!-- (file: (?P<file>\S+)|run) -->\n```python\n(?P<code>.*?)```", re.DOTALL)


def test_it_can_be_followed_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert [block["file"] for block in blocks] == ["guessing.py", None]
    (tmp_path / "guessing.py").write_text(blocks[0]["code"])
    exec(compile(blocks[1]["code"], str(PAGE), "exec"), {})
    output = capfd.readouterr().out
    assert output.count("the training is over") == 2 and "[0, 0]" in output
    run = Run.open("runs/guessing")
    assert run.status()["state"] == "complete" and run.metrics()["recent_return"].iloc[-1] >= 3.9
    assert (
        run.experiment.algorithm_of("caller").name == "ippo" and run.experiment.algorithm_of("answerer").name == "mappo"
    )
