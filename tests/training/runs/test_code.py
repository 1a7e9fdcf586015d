"""The code that trained a run: recorded at each start and resume, and never a path."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from marlnb import code_version
from marlnb.experiment import Experiment
from marlnb.training.runs import code
from marlnb.training.runs.code import code_label, log_code
from marlnb.training.train import train

SMALL = ("env=mpe/simple_spread", "n_envs=2", "rollout_steps=4", "model.hidden=[4]", "threads=1", "algorithm.epochs=1")


def versions(run: Path) -> list[tuple[int, str]]:
    return [(entry["iteration"], entry["sha256"]) for entry in json.loads((run / "code.json").read_text())["code"]]


def test_a_training_and_each_resume_record_their_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(Experiment.compose(*SMALL, "frames=16", "evaluate_every=0"), tmp_path / "run", progress=False)
    first = code_version.training_code()
    assert versions(run.path) == [(0, first["sha256"])]
    text = (run.path / "code.json").read_text()
    assert str(Path(code_version.__file__).parents[1]) not in text and str(tmp_path) not in text

    monkeypatch.setattr(code, "training_code", lambda: {"version": "9", "commit": "", "sha256": "f" * 64})
    log_code(run.path, run.experiment, 2)
    log_code(run.path, run.experiment, 2)
    assert versions(run.path) == [(0, first["sha256"]), (2, "f" * 64)]
    assert code_label(run.path) == f"marlnb {first['version']} ({first['sha256'][:8]}), then marlnb 9 (ffffffff)"
    log_code(run.path, run.experiment, 0)  # trained again from the start
    assert code_label(run.path) == "marlnb 9 (ffffffff)"


def test_the_hash_is_of_what_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("envs/a.py", "widgets/b.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(code_version, "_PACKAGE", tmp_path)
    hash_now = code_version.code_sha256.__wrapped__
    before, everything = hash_now(code_version.NOT_TRAINING), hash_now(frozenset())
    (tmp_path / "widgets" / "b.py").write_text("2")
    assert hash_now(code_version.NOT_TRAINING) == before and hash_now(frozenset()) != everything
    (tmp_path / "envs" / "a.py").write_text("2")
    assert hash_now(code_version.NOT_TRAINING) != before


def test_own_modules_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_corridor.py").write_text("raise RuntimeError('this is not imported')\n")
    experiment = Experiment.from_json(
        Experiment.compose(*SMALL).to_json() | {"env": {"name": "my_corridor:Corridor"}}, origin="."
    )
    (tmp_path / "run").mkdir()
    log_code(tmp_path / "run", experiment, 0)
    first = code_label(tmp_path / "run")
    assert "my_corridor:Corridor (" in first and "my_corridor" not in sys.modules
    (tmp_path / "my_corridor.py").write_text("\n")
    log_code(tmp_path / "run", experiment, 0)
    assert code_label(tmp_path / "run") != first


@pytest.mark.parametrize("text", ["{", "[]", '{"code": 3}', '{"code": [3, {"iteration": "x"}]}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "code.json").write_text(text)
    assert code_label(tmp_path) == ""
