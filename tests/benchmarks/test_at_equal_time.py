"""The table of scores after equal time, from scores written by hand, and one small training run of marlnb's side."""

from __future__ import annotations

from pathlib import Path

from benchmarks.tune.journal import append_line
from benchmarks.verify.at_equal_time import BENCHMARL, JAXMARL, MARLNB, SIDES, measure, ours, table
from marlnb.training.runs.files import read_lines

TASK = {"task": "simple_spread", "algorithm": "ippo", "random": -26.0, "frames": 12_000}


def test_medians_by_side() -> None:
    rows = [{**TASK, "side": MARLNB, "seed": seed, "score": score} for seed, score in enumerate((-9.0, -8.0, -12.0))]
    lines = table([*rows, {**TASK, "side": JAXMARL, "seed": 0, "score": -20.0}]).splitlines()
    assert lines[2] == f"| simple_spread | ippo | {MARLNB} | -26.0 | -9.0 (-9.0, -8.0, -12.0) | 12,000 |"
    assert lines[3] == f"| simple_spread | ippo | {JAXMARL} | -26.0 | -20.0 | 12,000 |"


def test_scores_are_not_measured_again(tmp_path: Path) -> None:
    for task, algorithm, side in SIDES:
        row = {"task": task, "algorithm": algorithm, "side": side, "seed": 0, "seconds": 1.0, "score": 0.0}
        append_line(tmp_path / "scores.jsonl", row)
    measure(["simple_spread", "multiwalker"], [0], 1.0, 1, tmp_path)
    assert len(list(read_lines(tmp_path / "scores.jsonl"))) == len(SIDES)
    assert {side for task, _, side in SIDES if task == "multiwalker"} == {MARLNB, BENCHMARL}


def test_our_side_is_scored() -> None:
    row = ours("simple_spread", "ippo", 0, 0.05, 4)
    assert row["frames"] % 6400 == 0 and -60 < row["score"] < 0 and -60 < row["random"] < 0
