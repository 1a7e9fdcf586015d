"""Several runs in one chart: lines of runs, averages of patterns, and what is not averaged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from marlnb.errors import MarlnbError, RunError
from marlnb.training.runs.lock import RunLock
from marlnb.widgets.runs.attach import attach
from marlnb.widgets.runs.runs_panel import RunsPanel
from tests.lab.run_folders import DATA, write_run
from tests.widgets.trained import text_of

LAST = -30 * math.exp(-4)  # of the returns that write_run writes, less -10 - seed


@pytest.fixture
def panel(tmp_path: Path) -> Iterator[RunsPanel]:
    for seed in range(3):
        write_run(tmp_path / f"seed-{seed}", seed=seed)
    write_run(tmp_path / "other", seed=7)
    made = attach([tmp_path / "other", str(tmp_path / "seed-*")], references={"random": -50.0})
    made.catch_up()
    yield made
    made.close()


def test_a_pattern_is_averaged_and_a_run_is_a_line(panel: RunsPanel, tmp_path: Path) -> None:
    single, mean = panel.curves.lines.values()
    assert list(panel.curves.lines) == [str(tmp_path / "other"), f"{tmp_path / 'seed-*'} (3 runs)"]
    assert single[0][-1] == 100_000 and single[1][-1] == pytest.approx(-17 + LAST) and len(single) == 2
    x, value, low, high = mean
    assert x[0] == 2000 and x[-1] == 100_000
    assert value[-1] == pytest.approx(-11 + LAST)  # of -10, -11 and -12: with three runs the IQM is the mean
    assert -12.001 + LAST <= low[-1] < value[-1] < high[-1] <= -9.999 + LAST  # means of three of these, drawn again
    assert "interquartile mean of 3 of 3 runs" in text_of(panel._notes) and "4 complete" in text_of(panel._line)
    assert panel.curves.references == {"random": -50.0} and panel.figure() is not None


def test_any_metric_can_be_drawn(panel: RunsPanel) -> None:
    assert panel.metric.options[:2] == ("return", "speaker/entropy")
    panel.metric.value = "speaker/entropy"
    panel.catch_up()
    (_, single), (_, mean, low, high) = panel.curves.lines.values()
    assert single[-1] == mean[-1] == low[-1] == high[-1] == pytest.approx(0.5)
    assert panel.curves.references == {} and panel.curves.title == "speaker/entropy"


def test_runs_appear_and_grow(panel: RunsPanel, tmp_path: Path) -> None:
    run = write_run(tmp_path / "seed-10", seed=10, state="running", frames=40_000, rows=20)
    with RunLock(run / "lock"):
        panel.catch_up()
        mean = panel.curves.lines[f"{tmp_path / 'seed-*'} (4 runs)"]
        assert mean[0][-1] == 40_000 and "up to where the slowest is: 40.0k frames" in text_of(panel._notes)
        assert "1 training" in text_of(panel._line)


def test_a_pattern_matches_the_same_runs_after_the_notebook_changed_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        write_run(tmp_path / "runs [1]" / f"seed-{seed}", seed=seed)
    monkeypatch.chdir(tmp_path / "runs [1]")  # whose name is no pattern
    made = attach(["seed-*", "seed-0"])
    try:
        monkeypatch.chdir(tmp_path)
        write_run(tmp_path / "runs [1]" / "seed-3", seed=3)
        made.catch_up()
        assert list(made.curves.lines) == ["seed-* (4 runs)", "seed-0"] and "4 complete" in text_of(made._line)
    finally:
        made.close()


@pytest.mark.parametrize("text", ["{}", "", "{damaged", None], ids=["no env", "empty", "damaged", "unknown env"])
def test_a_run_that_cannot_be_read_is_a_note_and_the_others_are_shown(
    panel: RunsPanel, tmp_path: Path, text: str | None
) -> None:
    file = write_run(tmp_path / "seed-3", seed=3) / "experiment.json"
    experiment = json.loads(file.read_text())
    unknown = experiment | {"env": experiment["env"] | {"name": "mine/corridor"}}
    file.write_text(json.dumps(unknown) if text is None else text)
    opened = attach([str(tmp_path / "seed-*")])
    try:
        for shown in (panel, opened):
            shown.catch_up()
            assert f"{tmp_path / 'seed-*'} (3 runs)" in shown.curves.lines
            assert f"{tmp_path / 'seed-3'}: " in text_of(shown._notes)
        with pytest.raises(MarlnbError):
            attach([tmp_path / "seed-3"])
        with pytest.raises(RunError, match=f"matches no run that can be read: {tmp_path / 'seed-3'}"):
            attach([str(tmp_path / "seed-3*")])
        file.write_text(json.dumps(experiment))
        opened.catch_up()
        assert list(opened.curves.lines) == [f"{tmp_path / 'seed-*'} (4 runs)"]
    finally:
        opened.close()


def test_what_differs_is_not_averaged(panel: RunsPanel, tmp_path: Path) -> None:
    algorithm = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    write_run(tmp_path / "seed-3", seed=3, algorithm=algorithm | {"lr": 0.1})
    panel.catch_up()
    assert list(panel.curves.lines) == [
        str(tmp_path / name) for name in ("other", "seed-0", "seed-1", "seed-2", "seed-3")
    ]
    assert "4 runs are not averaged: they differ in algorithm.lr" in text_of(panel._notes)


def test_groups_that_earn_differently_have_no_common_return(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [{k: v for k, v in row.items() if k != "crc"} | {"returns": {"hunter": 1.0, "prey": -1.0}} for row in lines]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    panel = attach([run])
    panel.catch_up()
    assert panel.metric.options[:2] == ("return of hunter", "return of prey")
    assert set(panel.curves.lines[str(run)][1]) == {1.0}
    panel.close()


def test_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="matches no run folder"):
        attach([str(tmp_path / "seed-*")])
    with pytest.raises(RunError, match="is not a run folder"):
        attach([tmp_path / "none"])
    with pytest.raises(RunError, match="no runs were given"):
        attach([])
    for other, text in ((3, "3"), (None, "None"), ([3], r"\[3\]")):
        with pytest.raises(RunError, match=rf"expected a run, its folder, or a list of these; got {text}"):
            attach(other)  # type: ignore[arg-type]
