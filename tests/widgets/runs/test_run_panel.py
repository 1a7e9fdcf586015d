"""The panel of a run that another process trains: it shows the files, and its buttons reach that process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from marlnb.errors import RunError
from marlnb.training.runs.checkpoints.removal import remove_checkpoint
from marlnb.training.runs.files import METRICS, STOP, is_run
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_removal import delete_run
from marlnb.training.train import resume
from marlnb.widgets.core.snapshot import learning_curve_figure
from marlnb.widgets.runs.attach import attach
from marlnb.widgets.runs.run_panel import TABS, RunPanel, RunTab
from marlnb.widgets.runs.runs_panel import RunsPanel
from marlnb.widgets.runs.training_panel import TrainingPanel
from tests.widgets.trained import SMALL, original, run, text_of, until  # noqa: F401


@dataclass
class Elsewhere:
    """A training run in another process."""

    process: subprocess.Popen[bytes]
    folder: Path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    folder = tmp_path / "run"
    words = [*SMALL[:-2], "frames=100_000_000", "checkpoint_every=1_000_000", f"run={folder}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "marlnb", "train", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: (is_run(folder) and Run.open(folder).status()["state"] == "running") or process.poll() is not None)
    yield Elsewhere(process, folder)
    process.kill()
    process.wait()


def test_buttons_reach_a_training_in_another_process(elsewhere: Elsewhere) -> None:
    panel = attach(elsewhere.folder)
    run = panel.run  # noqa: F811
    try:
        until(lambda: "training" in text_of(panel._line) and f"process {elsewhere.process.pid}" in text_of(panel._line))
        until(lambda: len(_lines(panel).get("speaker", [[]])[0]) > 3)
        panel.buttons["pause"].click()
        until(lambda: run.status()["state"] == "paused")
        until(lambda: panel.buttons["pause"].description == "Continue" and "paused" in text_of(panel._line))
        iteration = run.status()["iteration"]
        panel.buttons["save"].click()
        until(lambda: [one.iteration for one in run.checkpoints] == [iteration])  # it waits, and saves
        panel.buttons["pause"].click()
        until(lambda: run.status()["iteration"] > iteration)
        panel.buttons["stop"].click()
        assert elsewhere.process.wait(60) is not None
        until(lambda: "stopped: resume from the last checkpoint" in text_of(panel._line))
        assert run.status()["state"] == "stopped" and run.checkpoint().iteration == run.status()["iteration"]
        rows = [json.loads(line) for line in (run.path / METRICS).read_text().splitlines()]
        until(lambda: len(_lines(panel)["speaker"][0]) == len(rows))
        assert _lines(panel)["speaker"] == [
            [row["frames"] for row in rows],
            [row["returns"]["speaker"] for row in rows],
        ]
        assert [panel.buttons[name].disabled for name in ("start", "pause", "save", "stop")] == [
            False,
            True,
            True,
            True,
        ]
    finally:
        panel.close()


def test_a_panel_begins_nothing_while_another_process_trains(elsewhere: Elsewhere) -> None:
    panel = attach(elsewhere.folder)
    try:
        panel.catch_up()
        assert panel.buttons["start"].disabled
        with pytest.raises(RunError, match="is being trained already"):
            panel.start(stop_after_s=0.01).wait(60)
        frames = panel.run.status()["frames"]
        until(lambda: panel.run.status()["frames"] > frames, 30)
        panel.catch_up()
        assert "is being trained already" in text_of(panel._error)
        assert not (elsewhere.folder / STOP).exists() and not elsewhere.process.poll()
        assert "time limit" not in "".join(panel.run.events())  # that of a training run that did not start
        panel.buttons["stop"].click()
        assert elsewhere.process.wait(60) is not None
        until(lambda: "stopped: resume" in text_of(panel._line))
        assert not text_of(panel._error)
    finally:
        panel.close()


def test_a_training_that_was_killed_is_interrupted_and_continues_here(elsewhere: Elsewhere) -> None:
    panel = attach(elsewhere.folder)
    try:
        panel.buttons["save"].click()
        until(lambda: panel.run.checkpoints)
        saved = panel.run.checkpoint().iteration
        elsewhere.process.kill()
        until(lambda: "interrupted: resume from the last checkpoint" in text_of(panel._line))
        assert panel.buttons["start"].description == "Resume" and not panel.buttons["start"].disabled
        panel.buttons["start"].click()
        until(lambda: panel.run.status()["state"] == "running" and panel.run.status()["iteration"] > saved)
        panel.buttons["stop"].click()
        assert panel.training is not None
        panel.training.wait(60)
        rows = [json.loads(line) for line in (panel.run.path / METRICS).read_text().splitlines()]
        assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))  # cut at the checkpoint, then on
        until(lambda: _lines(panel)["listener"][0] == [row["frames"] for row in rows])
    finally:
        panel.close()


def test_a_run_that_was_made_longer_elsewhere_resumes(run: Run) -> None:  # noqa: F811
    panel = RunPanel(run)
    try:
        stop = [lambda report: (run.path / STOP).touch()]
        assert resume(run.path, frames=1200, progress=False, on_report=stop).status()["state"] == "stopped"
        panel.catch_up()
        panel.buttons["start"].click()
        assert panel.training is not None and panel.training.wait(60).status()["frames"] == 1200
    finally:
        panel.close()


def test_lines_of_agents_are_hidden_but_where_they_play_against_each_other() -> None:
    hidden = []
    spread, league = (Run.open(Path(__file__).parents[3] / "data" / name) for name in ("spread", "tictactoe_league"))
    for shown in (spread, league):
        panel = RunPanel(shown)
        panel.catch_up()
        hidden.append(panel.returns.hidden)
        panel.close()
    assert hidden == [["agent_0", "agent_1", "agent_2"], ["player"]]
    figure = learning_curve_figure(league)
    assert figure is not None
    assert {line.get_label() for line in figure.axes[0].lines} >= {"player_1", "player_2"}


def test_a_run_that_cannot_be_read_for_a_while_is_shown_again(run: Run) -> None:  # noqa: F811
    metrics, moved = run.path / METRICS, run.path / "moved"
    panel = RunPanel(run)
    try:
        panel.catch_up()
        metrics.rename(moved)
        metrics.mkdir()  # as a disk that does not answer
        until(lambda: "cannot be read" in text_of(panel._line), deadline_s=60)
        metrics.rmdir()
        moved.rename(metrics)
        until(lambda: text_of(panel._line).startswith("complete"), deadline_s=60)
        assert _lines(panel)["speaker"][0] == [100 * (k + 1) for k in range(9)]
    finally:
        panel.close()


def test_a_run_that_was_deleted_is_missing_and_cannot_be_started(run: Run) -> None:  # noqa: F811
    panel, chart = RunPanel(run), RunsPanel([run])
    try:
        delete_run(run.path)
        panel.catch_up()
        chart.catch_up()
        assert text_of(panel._line) == "missing: the folder was deleted or moved"
        assert all(button.disabled for button in panel.buttons.values())
        assert text_of(chart._line) == "1 missing" and run.status() == {"state": "missing", "frames": 0}
    finally:
        panel.close()
        chart.close()


def test_tabs_are_made_when_they_are_opened(run: Run) -> None:  # noqa: F811
    panel = RunPanel(run)
    try:
        assert panel.checkpoints is None and panel.recording is None
        panel.tabs.selected_index = 1
        assert panel.checkpoints is not None and panel.recording is None
        assert panel.returns.markers == [[300, "3", False], [600, "6", False], [900, "9", False]]
        made = panel.checkpoints
        panel.tabs.selected_index = 2
        assert panel.recording is not None
        until(lambda: panel.recording is not None and panel.recording.plan is not None)
        panel.tabs.selected_index = 1
        assert panel.checkpoints is made
        remove_checkpoint(run, 6)
        panel.tabs.selected_index = 2
        assert [value for _, value in panel.recording.checkpoint.options] == ["last", "best", "all", "9", "3"]
    finally:
        panel.close()


def test_a_tab_that_cannot_be_made_says_why_and_is_made_again_later(
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, is_broken = TABS["Recordings"], True

    def make_once_it_can_be(panel: RunPanel) -> RunTab:
        if is_broken:
            raise RunError("the folder cannot be read")
        return make(panel)

    monkeypatch.setitem(TABS, "Recordings", make_once_it_can_be)
    panel = RunPanel(run)
    try:
        panel.tabs.selected_index = 2
        assert "the folder cannot be read" in panel.tabs.children[2].children[0].value
        panel.tabs.selected_index, is_broken = 1, False
        panel.tabs.selected_index = 2
        assert panel.recording is not None
    finally:
        panel.close()


def _lines(panel: RunPanel) -> dict[str, list[list[float]]]:
    """What a page that is opened now would be sent."""
    lines: dict[str, list[list[float]]] = panel.returns.get_state("lines")["lines"]
    return lines


def test_what_was_loaded_is_the_panels(run: Run) -> None:  # noqa: F811
    panel = TrainingPanel(run=run.path)
    assert panel.run_panel is not None and panel.policies is None
    panel.run_panel.tabs.selected_index = 1
    assert panel.run_panel.checkpoints is not None and panel.policies is None
    panel.run_panel.checkpoints.choose(3)
    panel.run_panel.checkpoints.load()
    until(lambda: panel.policies is not None)
    assert panel.policies is not None and set(panel.policies) == {"speaker", "listener"}
    panel.run_panel.close()
