"""The profile of a run: a trace that viewers open, tables of phases and operators, and no effect on learning."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from marlnb.experiment import Experiment
from marlnb.training.train import train

EXPERIMENT = Experiment.compose(
    *("env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "algorithm.minibatch_frames=16"),
    *("model.hidden=[8]", "n_envs=2", "rollout_steps=8", "frames=112", "evaluate_every=3", "evaluation_episodes=2"),
    *("threads=1", "profile=true"),
)


def test_trace_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(EXPERIMENT, tmp_path / "r")
    with gzip.open(run.path / "profile" / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    assert all({"name", "ts", "dur", "pid", "tid"} <= event.keys() for event in spans)  # what viewers draw
    names = [event["name"] for event in spans if event.get("cat") == "user_annotation"]
    assert names.count("collect") == names.count("learn") == 3  # iterations 3 to 5 of 7
    assert names.count("evaluation") == 1  # after iteration 3
    assert any(event["name"] == "aten::addmm" for event in spans)
    summary = (run.path / "profile" / "summary.txt").read_text()
    assert summary in capsys.readouterr().out
    lines = [line.split() for line in summary.splitlines() if line]
    shares = {line[0]: float(line[-1].rstrip("%")) for line in lines if line[-1].endswith("%")}
    phases = ("stepping", "acting", "learning", "evaluation", "checkpoint", "everything")
    assert sum(shares[name] for name in phases) == pytest.approx(100, abs=0.6)
    assert "iterations 3 to 5" in summary and "aten::" in summary and "https://ui.perfetto.dev" in summary


def test_a_profile_does_not_change_what_is_learned(tmp_path: Path) -> None:
    profiled = train(EXPERIMENT, tmp_path / "a", progress=False)
    unprofiled = train(replace(EXPERIMENT, profile=False), tmp_path / "b", progress=False)
    weights = [run.policies()["agent"].state_dict() for run in (profiled, unprofiled)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert not (unprofiled.path / "profile").exists()


def test_a_training_too_short_for_a_trace_says_so(tmp_path: Path) -> None:
    run = train(replace(EXPERIMENT, max_iterations=2), tmp_path / "r", progress=False)
    assert "no trace: that takes at least 3 iterations" in (run.path / "profile" / "summary.txt").read_text()
